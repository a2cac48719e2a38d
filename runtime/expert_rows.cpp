#include "runtime/expert_rows.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "runtime/error.h"

namespace runtime {
namespace {

using Counts = std::vector<std::int64_t>;

// The counts of each member.
std::vector<Counts> gathered(Communicator& communicator, const Members& members, const Counts& own) {
  Counts all(own.size() * members.size());
  const MutableBytes out = std::as_writable_bytes(std::span(all));
  const ConstBytes inp = std::as_bytes(std::span(own));
  communicator.all_gather(members, std::span(&out, 1), std::span(&inp, 1), sim::DType::fp64);
  std::vector<Counts> by_member;
  for (std::size_t m = 0; m < members.size(); ++m)
    by_member.emplace_back(all.begin() + static_cast<std::ptrdiff_t>(m * own.size()),
                           all.begin() + static_cast<std::ptrdiff_t>((m + 1) * own.size()));
  return by_member;
}

Counts sums(const std::vector<Counts>& counts) {
  Counts all(counts.front().size());
  for (const Counts& of_rank : counts)
    for (std::size_t e = 0; e < all.size(); ++e) all[e] += of_rank[e];
  return all;
}

std::int64_t total(const Counts& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// The most rows of a rank over the ranks' mean, from the rows of each expert; a rank holds `held` experts.
double most_over_mean(const Counts& counts, std::size_t held) {
  std::int64_t most = 0;
  for (auto first = counts.begin(); first != counts.end(); first += static_cast<std::ptrdiff_t>(held))
    most = std::max(most, std::accumulate(first, first + static_cast<std::ptrdiff_t>(held), std::int64_t{0}));
  const double mean = static_cast<double>(total(counts) * static_cast<std::int64_t>(held)) /
                      static_cast<double>(counts.size());
  return mean > 0 ? static_cast<double>(most) / mean : 1;
}

}  // namespace

ExpertRows::Layout ExpertRows::interleaved(const std::vector<Counts>& counts) {
  Layout layout(counts.size());
  std::int64_t at = 0;
  for (std::size_t e = 0; e < counts.front().size(); ++e)
    for (std::size_t r = 0; r < counts.size(); ++r) {
      layout[r].push_back({at, counts[r][e]});
      at += counts[r][e];
    }
  return layout;
}

ExpertRows::ExpertRows(Counts own, Communicator& communicator, const Members* divided,
                       const Members* sharing) {
  routed_ = total(own);
  if (divided) {
    const std::size_t held = own.size() / divided->size();
    std::vector<Counts> to_here;
    const std::vector<Counts> of_all = gathered(communicator, *divided, own);
    busiest_over_mean_ = most_over_mean(sums(of_all), held);
    for (const Counts& of_rank : of_all) {
      const auto first = of_rank.begin() + static_cast<std::ptrdiff_t>(divided->self * held);
      to_here.emplace_back(first, first + static_cast<std::ptrdiff_t>(held));
    }
    std::int64_t at = 0;
    for (std::size_t r = 0; r < divided->size(); ++r) {
      const auto first = own.begin() + static_cast<std::ptrdiff_t>(r * held);
      const std::int64_t rows =
          std::accumulate(first, first + static_cast<std::ptrdiff_t>(held), std::int64_t{0});
      sent_.push_back({{at, rows}});
      at += rows;
    }
    arriving_ = interleaved(to_here);
    own = sums(to_here);
  }
  received_ = total(own);
  if (sharing) {
    const std::vector<Counts> of_all = gathered(communicator, *sharing, own);
    shared_ = interleaved(of_all);
    own = sums(of_all);
  }
  computed_ = total(own);
  offsets_.push_back(0);
  for (const std::int64_t rows : own) offsets_.push_back(offsets_.back() + rows);
}

void ExpertRows::move(const sim::Operation& operation, const Rows& rows, const Members& members,
                      Collectives& collectives) const {
  const auto require_room = [&](std::int64_t arriving) {
    if (arriving > rows.room)
      throw DeviceError(
          operation.id + ": " + std::to_string(arriving) + " rows came to rank " +
          std::to_string(members.ranks[members.self]) + ", which has room for " + std::to_string(rows.room) +
          ": workload.expert_imbalance says how many more than the mean the plan provides for, and "
          "an implementation with expert_parallel.room_for_any_choice always has enough");
  };
  const auto at = [&](std::byte* base, Segment s) {
    return MutableBytes(base + s.first * rows.row_bytes, static_cast<std::size_t>(s.second * rows.row_bytes));
  };
  const auto parts = [&]<class Parts>(Parts, std::byte* base, const Layout& layout) {
    Parts all(layout.size());
    for (std::size_t r = 0; r < layout.size(); ++r)
      for (const Segment& s : layout[r]) all[r].push_back(at(base, s));
    return all;
  };
  const auto out = [&](const Layout& l) { return parts(Collectives::MutableParts{}, rows.out, l); };
  const auto inp = [&](const Layout& l) { return parts(Collectives::ConstParts{}, rows.inp, l); };
  if (operation.place == sim::Place::to_experts) {
    require_room(received_);
    return collectives.exchange_parts(members, out(arriving_), inp(sent_));
  }
  if (operation.place == sim::Place::from_experts)
    return collectives.exchange_parts(members, out(sent_), inp(arriving_));
  // Ranks that share experts all have all rows; what they make of the rows adds up.
  if (operation.kind == sim::OpKind::all_gather) {
    require_room(computed_);
    const Layout whole(members.size(), {{0, received_}});
    return collectives.exchange_parts(members, out(shared_), inp(whole));
  }
  const MutableBytes own = at(rows.out, {0, received_});
  collectives.sum_parts(members, std::span(&own, 1), inp(shared_), rows.dtype);
}

}  // namespace runtime
