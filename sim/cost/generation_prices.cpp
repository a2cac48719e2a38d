#include "sim/cost/generation_prices.h"

#include <algorithm>
#include <utility>

#include "sim/cost/software.h"

namespace sim {
namespace {

// The device and its host under one end of the band.
struct Band {
  DeviceClock clock;
  Seconds PricedBlock::*duration;
  HostTime PricedBlock::*host;
  double host_factor;

  DeviceClock::Span run(const Action& action, const PricedBlock& block, HostWork work) {
    work.before = work.before * host_factor;
    return clock.run(action.stream, {block.*duration, block.*host, work});
  }
};

}  // namespace

PricedGeneration price_generation(const GenerationPlan& generation, const std::vector<std::int64_t>& shown,
                                  const Hardware& hardware, const Calibration* calibration) {
  const Plan& plan = generation.plan;
  const Scenario& s = plan.scenario;
  const Program& program = plan.programs.front();
  const std::vector<HostWork> host = host_work(plan, program, hardware);
  const DeviceClock begin(Interference{interference(s, hardware)}, s.implementation.pipeline.in_order);
  const double uncertainty = s.implementation.host.uncertainty;
  Band expected{begin, &PricedBlock::duration, &PricedBlock::host, 1};
  Band low{begin, &PricedBlock::low, &PricedBlock::host_low, 1 / uncertainty};
  Band high{begin, &PricedBlock::high, &PricedBlock::host_high, uncertainty};

  PricedGeneration priced;
  BlockPricer pricer(plan, hardware, calibration);
  constexpr auto kNone = static_cast<std::size_t>(-1);
  std::vector<std::size_t> recent(plan.blocks.size(), kNone);  // lengths only grow: none comes back later
  std::vector<std::size_t>& shown_blocks = priced.shown.block_of.emplace_back();
  ExecutedProgram& shown_times = priced.shown.expected.programs.emplace_back();
  std::vector<PricedBlock>& blocks = priced.shown.blocks;
  const auto block_of = [&](const Action& a) {
    std::size_t& known = recent[static_cast<std::size_t>(a.block)];
    const Variables v = pricer.relevant(a.block, a.variables);
    if (known == kNone || blocks[known].phase != a.phase || blocks[known].variables != v) {
      known = blocks.size();
      blocks.push_back(pricer.price(a.block, a.phase, v));
      priced.counts.push_back(0);
      priced.first_starts.emplace_back();
    }
    return known;
  };
  // Of each token at least what looks at all before it is priced anew: layers of each kind.
  const auto tokens = static_cast<std::size_t>(s.workload.max_new_tokens);
  blocks.reserve(tokens + plan.blocks.size());
  priced.tokens.reserve(tokens);
  Program token{.role = {}, .actions = {}, .sections = {}};
  std::size_t next = 0;  // of those shown
  for (std::int64_t t = 0; t < s.workload.max_new_tokens; ++t) {
    token.actions.clear();
    token.sections.clear();
    append_token(generation, t, token);
    const bool is_shown = next < shown.size() && shown[next] == t;
    // What the host does before the first token, the second, and any other.
    const std::size_t like = program.sections[static_cast<std::size_t>(std::min<std::int64_t>(t, 2))].begin;
    Seconds start, end;
    std::size_t index = 0;
    for (std::size_t i = 0; i < token.actions.size(); ++i) {
      const Action& a = token.actions[i];
      // Layers of one kind follow each other.
      if (i == 0 || a.block != token.actions[i - 1].block) index = block_of(a);
      const PricedBlock& block = blocks[index];
      const DeviceClock::Span span = expected.run(a, block, host[like + i]);
      low.run(a, block, host[like + i]);
      high.run(a, block, host[like + i]);
      if (i == 0) start = span.start;
      end = span.end;
      if (priced.counts[index]++ == 0) priced.first_starts[index] = span.start;
      if (!is_shown) continue;
      shown_blocks.push_back(index);
      shown_times.start.push_back(span.start);
      shown_times.end.push_back(span.end);
    }
    priced.tokens.push_back(end - start);
    next += is_shown ? 1 : 0;
  }
  priced.duration = priced.shown.expected.duration = expected.clock.end();
  priced.low = priced.shown.low.duration = low.clock.end();
  priced.high = priced.shown.high.duration = high.clock.end();
  return priced;
}

}  // namespace sim
