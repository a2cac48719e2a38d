// A router's choice: for each token K of E experts and their weights.
//   scores      softmax of the logits over all experts, or their sigmoid (DeepSeek-V3, arXiv 2412.19437,
//               section 2.1.2).
//   choice      the K highest scores, ties to the lower expert. A bias is added to logits before a softmax
//               (gpt-oss); with a sigmoid it affects only the choice and has no gradient (balance without a
//               loss, arXiv 2408.15664). With groups only experts of the best groups can be chosen: a group's
//               rank is its highest score, with a sigmoid the sum of its two highest.
//   weights     scores of the chosen, divided by their sum (normalised) or not, times `scale`.
#pragma once
#include <cstdint>

namespace kernels {

struct RouteShape {
  std::int64_t R, E, K;  // rows (tokens), experts, chosen
  std::int64_t groups = 1, chosen_groups = 1;
};
struct RouteSettings {
  bool sigmoid = false, normalised = true;
  float scale = 1;
};

namespace cpu {

// weights, indices (R, K), best first; logits (R, E); bias (E) may be null.
void route_forward(float* weights, std::int32_t* indices, const float* logits, const float* bias,
                   RouteShape s, const RouteSettings& settings);

// dlogits (R, E) = gradient; dbias (E) += the softmax's, where neither bias nor dbias is null.
void route_backward(float* dlogits, float* dbias, const float* dweights, const std::int32_t* indices,
                    const float* logits, const float* bias, RouteShape s, const RouteSettings& settings);

}  // namespace cpu
}  // namespace kernels
