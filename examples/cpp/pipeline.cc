// Pipelined training, 1F1B over four meshes of two devices, where a step is ONE program: four stages y = x * w. It
// trains twice, by programs and by single calls, and compares the losses bitwise.
//   gangway up --workers 4 --devices 2 --detach
//   build/dev/examples/pipeline unix:FOLDER/control.sock TOKEN
#include <algorithm>
#include <span>

#include "example.h"
#include "pipeline_stage.h"

using gangway::Array, gangway::Donate;

constexpr int kStages = 4, kMicrobatches = 6, kSteps = 3;

// `in`: the weights of each stage, then inputs and targets of each microbatch. New weights, then losses.
std::vector<Array> Step(const std::vector<Stage>& stages, std::span<const Array> in) {
  const auto weights = in.first(kStages), x = in.subspan(kStages, kMicrobatches),
             target = in.last(kMicrobatches);
  Array y[kMicrobatches], inputs[kStages][kMicrobatches], sum[kStages];
  std::vector<Array> results(kStages);
  for (int t = 0; t < 2 * (kMicrobatches + kStages - 1); ++t) {
    for (int s = 0; s < kStages; ++s) {
      const Stage& stage = stages[s];
      const int ahead = t - s, back = t - (2 * kStages - 1 - s);  // one of them is even
      if (const int m = ahead / 2; ahead >= 0 && ahead % 2 == 0 && m < kMicrobatches) {
        inputs[s][m] = (s == 0 ? x[m] : y[m]).CopyTo(stage.rows);
        y[m] = stage.forward(inputs[s][m], weights[s]);
      }
      if (const int m = back / 2; back >= 0 && back % 2 == 0 && m < kMicrobatches) {
        if (s + 1 == kStages) {
          const auto [loss, dy] = stage.loss.Call<2>({y[m], target[m]});
          results.push_back(loss);
          y[m] = dy;  // from here on, its gradient
        }
        const gangway::Argument total = m == 0 ? stage.zero : Donate(sum[s]);
        auto [dx, dw] =
            stage.backward.Call<2>({inputs[s][m], weights[s], y[m].CopyTo(stage.rows), total});
        y[m] = dx, sum[s] = dw;
      }
    }
  }
  for (int s = 0; s < kStages; ++s) results[s] = stages[s].update(weights[s], sum[s]);
  return results;
}

int main(int argc, char** argv) {
  const gangway::Cluster cluster = Open(argc, argv, "pipeline");
  std::vector<Stage> stages;
  std::vector<Array> in;
  for (uint32_t s = 0; s < kStages; ++s) stages.emplace_back(cluster, 2 * s);
  auto put = [&, next = 0](const gangway::Sharding& sharding) mutable {
    std::vector<float> values(16);
    for (float& value : values) value = static_cast<float>((next += 7) % 11) / 11 - 0.4f;
    in.push_back(cluster.Put(values, {4, 4}, sharding));
  };
  for (const Stage& stage : stages) put(stage.whole);
  for (int m = 0; m < kMicrobatches; ++m) put(stages.front().rows);
  for (int m = 0; m < kMicrobatches; ++m) put(stages.back().rows);

  const auto single = [&](std::span<const Array> arguments) { return Step(stages, arguments); };
  const gangway::Program program = Value(gangway::Trace(cluster, "step", single, in));
  const auto train = [&](const auto& step) {
    std::vector<Array> arguments = in;
    std::vector<float> losses;
    for (int i = 0; i < kSteps; ++i) {
      const std::vector<Array> results = step(std::span<const Array>(arguments));
      std::copy_n(results.begin(), kStages, arguments.begin());
      losses.push_back(0);
      for (const Array& each : std::span(results).subspan(kStages))
        for (const float part : Floats(each)) losses.back() += part;
    }
    return losses;
  };
  const std::vector<float> losses = train(program), same = train(single);
  std::cout << program.node_count() << " nodes; losses";
  for (const float loss : losses) std::cout << " " << loss;
  std::cout << (losses == same ? "; the same by single calls\n" : "; others by single calls\n");
  return losses == same ? 0 : 1;
}
