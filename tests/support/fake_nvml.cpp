// NVML as runtime/gpu_state.cpp loads it, of one GPU under a load that its power limit holds back: the clock
// falls from 1980 to 1755 MHz within the first reads. Set FAKE_NVML_FAILS for a driver that does not start.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotFound = 6, kDriverNotLoaded = 9;
int the_gpu;
unsigned reads;

int copy(char* to, unsigned length, const char* text) {
  std::snprintf(to, length, "%s", text);
  return kSuccess;
}

}  // namespace

EXPORT int nvmlInit_v2() {
  return std::getenv("FAKE_NVML_FAILS") != nullptr ? kDriverNotLoaded : kSuccess;
}
EXPORT const char* nvmlErrorString(int) {
  return "Driver Not Loaded";
}
EXPORT int nvmlSystemGetDriverVersion(char* text, unsigned length) {
  return copy(text, length, "570.86.15");
}
EXPORT int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = 1;
  return kSuccess;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  *device = &the_gpu;
  return index == 0 ? kSuccess : kInvalidArgument;
}
EXPORT int nvmlDeviceGetHandleByPciBusId_v2(const char* id, void** device) {
  *device = &the_gpu;
  return std::strcmp(id, "0000:17:00.0") == 0 ? kSuccess : kNotFound;
}
EXPORT int nvmlDeviceGetName(void*, char* text, unsigned length) {
  return copy(text, length, "NVIDIA H100 80GB HBM3");
}
EXPORT int nvmlDeviceGetClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 2 ? 2619 : ++reads <= 2 ? 1980 : 1755;
  return kSuccess;
}
EXPORT int nvmlDeviceGetMaxClockInfo(void*, int clock, unsigned* mhz) {
  *mhz = clock == 2 ? 2619 : 1980;
  return kSuccess;
}
EXPORT int nvmlDeviceGetTemperature(void*, int, unsigned* celsius) {
  *celsius = 61;
  return kSuccess;
}
EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned* milliwatts) {
  *milliwatts = 698500;
  return kSuccess;
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) {
  *bits = 0x4;
  return kSuccess;
}
