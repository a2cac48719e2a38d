// Caches below a folder of the test's own, for this program and for those that it starts.
#pragma once
#include <cstdlib>
#include <string>

#include "tests/support/temporary_folder.h"

class CacheFolder {
 public:
  CacheFolder() {
    if (const char* const before = std::getenv("XDG_CACHE_HOME")) before_ = before;
    setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
  }
  ~CacheFolder() {
    before_.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }
  CacheFolder(const CacheFolder&) = delete;
  CacheFolder& operator=(const CacheFolder&) = delete;
  const std::filesystem::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
  std::string before_;
};
