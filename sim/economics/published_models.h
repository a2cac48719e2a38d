// What published models took to train and how well they do: presets/published/quality.csv.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/enum_names.h"

namespace sim {

// Scores of base models, in percent.
enum class QualityMeasure {
  commonsense,  // mean over PIQA, SIQA, HellaSwag, WinoGrande, ARC, OpenBookQA, CommonsenseQA (Llama 2's)
  mmlu,         // 5-shot
};
template <>
inline constexpr std::array<std::string_view, 2> kOtherWords<QualityMeasure>{"commonsense reasoning", "MMLU"};

struct PublishedModel {
  std::string name;    // "Llama 2 70B"
  std::string preset;  // of its shape
  std::string family;
  std::string gpu;                  // that it was trained on
  std::optional<double> gpu_hours;  // of pre-training
  std::optional<double> commonsense, mmlu;
  std::string hours_source, quality_source;

  std::optional<double> quality(QualityMeasure measure) const {
    return measure == QualityMeasure::commonsense ? commonsense : mmlu;
  }
};

// Throws PresetError naming file, line and column.
std::vector<PublishedModel> load_published_models();
std::vector<PublishedModel> published_models_from_csv(std::string_view csv, const std::string& file);

}  // namespace sim
