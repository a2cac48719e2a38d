// Multi-token prediction in training (DeepSeek-V3, arXiv 2412.19437, section 2.2): a module takes the last
// hidden state and the embedding of the next token, each normed, projects both together to one hidden state,
// and runs a layer of its own; the model's head then predicts the token after the next. Among several modules,
// each takes the one's before in place of the last hidden state and predicts a token further on. Embedding
// and head are the model's, the former a copy in the last pipeline stage. What the modules compute stands in
// the blocks of the head.
#pragma once
#include <string>
#include <vector>

#include "sim/plan/decoder.h"

namespace sim {

struct PredictionBuffers {
  LayerResults layer;
  BufferId embedding = kNoBuffer;                  // of the next tokens, (stream rows, hidden)
  BufferId normed = kNoBuffer;                     // both, (stream rows, 2 hidden)
  NormResult hidden_norm, embedding_norm;          // into its halves
  BufferId residual = kNoBuffer, out = kNoBuffer;  // before and after the module's layer
  BufferId gradient = kNoBuffer;                   // of these, updated in place
};
PredictionBuffers add_prediction_buffers(PlanBuilder& builder, std::size_t module);

// To `buffers.out`. `next_tokens` are the targets, `residual` the last hidden state, of the module before or
// of the model itself.
std::vector<Operation> prediction_forward(PlanBuilder& builder, const std::string& block,
                                          const DecoderParameters& p, const PredictionBuffers& buffers,
                                          BufferId next_tokens, BufferId residual, BufferId rope_table);
// From `buffers.gradient`, adding to the gradients of that hidden state and of the embedding.
std::vector<Operation> prediction_backward(PlanBuilder& builder, const std::string& block,
                                           const DecoderParameters& p, const PredictionBuffers& buffers,
                                           BufferId next_tokens, BufferId residual,
                                           BufferId residual_gradient, BufferId rope_table);

}  // namespace sim
