#include "sim/validate/calibrated_device.h"

#include <map>
#include <mutex>
#include <string>

#include "sim/cost/calibration_preset.h"
#include "sim/scenario/preset.h"
#include "sim/validate/table_words.h"

namespace sim {

const Calibration& calibrated_device(std::string_view name) {
  if (name.empty()) throw CannotPredict("gpu is not given");
  const std::optional<std::string> preset = hardware_preset_of(name);
  if (!preset) throw CannotPredict("unknown GPU \"" + std::string(name) + "\": no hardware preset matches");
  static std::mutex mutex;
  static std::map<std::string, std::optional<Calibration>, std::less<>> loaded;
  const std::scoped_lock lock(mutex);
  const std::string key = (preset_directory() / *preset).string();  // the folder of presets may be exchanged
  auto found = loaded.find(key);
  if (found == loaded.end()) found = loaded.emplace(key, load_calibration_preset(*preset)).first;
  if (!found->second) throw CannotPredict("there is no calibration of " + *preset);
  return *found->second;
}

DType dtype_of(std::string_view column, std::string_view text) {
  return *from_name<DType>(known_meaning("dtype", column, text));
}

Prediction as_time(std::string_view column, const MeasuredTime& time, double seconds_of_unit) {
  return {.column = column,
          .value = time.seconds.value / seconds_of_unit,
          .low = time.low.value / seconds_of_unit,
          .high = time.high.value / seconds_of_unit,
          .table = time.table};
}

Prediction as_rate(std::string_view column, const MeasuredTime& time, double amount) {
  return {.column = column,
          .value = amount / time.seconds.value,
          .low = amount / time.high.value,
          .high = amount / time.low.value,
          .table = time.table};
}

}  // namespace sim
