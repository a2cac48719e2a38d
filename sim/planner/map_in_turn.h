// Values of few keys, which are asked for in the same order again and again.
#pragma once
#include <cstddef>
#include <utility>
#include <vector>

namespace sim {

// Each search for a key starts where the last one ended.
template <class Key, class Value>
class MapInTurn {
 public:
  // The key's value, and whether it is new. The reference is valid until another key is added.
  std::pair<Value&, bool> try_emplace(const Key& key) {
    const std::size_t known = entries_.size();
    for (std::size_t i = 0; i < known; ++i, ++last_) {
      if (last_ == known) last_ = 0;
      if (Entry& e = entries_[last_]; e.key == key) return {e.value, false};
    }
    if (known == 0) entries_.reserve(kUsual);
    last_ = known;
    return {entries_.emplace_back(Entry{key, {}}).value, true};
  }

 private:
  static constexpr std::size_t kUsual = 16;
  struct Entry {
    Key key;
    Value value;
  };
  std::vector<Entry> entries_;
  std::size_t last_ = 0;
};

}  // namespace sim
