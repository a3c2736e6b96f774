// main() of a fuzz target outside the preset `fuzz`: runs the target on the files named as
// arguments or else on its seeds, the empty input and RUNS (default 2000) mutations of the seeds
// from a fixed random seed. A crash fails the test and prints the input to stderr in hexadecimal.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>

#include "gangway/base/fuzz.h"

#pragma weak LLVMFuzzerCustomMutator

namespace gangway::fuzz {
namespace {

constexpr size_t kInputBytesMax = 4096;

const std::string* current = nullptr;

void Run(const std::string& input) {
  current = &input;
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
  current = nullptr;
}

void OnAbort(int) {
  if (current != nullptr) {
    std::fprintf(stderr, "the failing input, %zu bytes: ", current->size());
    for (const unsigned char c : *current) std::fprintf(stderr, "%02x", c);
    std::fprintf(stderr, "\n");
  }
}

// One small change of a kind that often breaks parsers.
void MutateBytes(std::string& input, const std::vector<std::string>& seeds, std::mt19937& random) {
  const size_t at = input.empty() ? 0 : random() % input.size();
  switch (random() % 7) {
    case 0:
      input.insert(at, 1, static_cast<char>(random()));
      break;
    case 1:
      if (!input.empty()) input[at] = static_cast<char>(random());
      break;
    case 2:
      if (!input.empty()) input[at] = static_cast<char>(input[at] ^ (1 << random() % 8));
      break;
    case 3:
      input.erase(at, 1 + random() % 8);
      break;
    case 4:
      input.resize(at);
      break;
    case 5:
      input.insert(at, input.substr(at, 1 + random() % 16));
      break;
    default: {
      const std::string& other = seeds[random() % seeds.size()];
      input = input.substr(0, at) + other.substr(other.empty() ? 0 : random() % other.size());
    }
  }
  if (input.size() > kInputBytesMax) input.resize(kInputBytesMax);
}

std::string Mutated(const std::vector<std::string>& seeds, std::mt19937& random) {
  std::string input = seeds[random() % seeds.size()];
  const bool structured = &LLVMFuzzerCustomMutator != nullptr && random() % 4 != 0;
  const size_t changes = 1 + random() % 6;
  for (size_t i = 0; i < changes; ++i) {
    if (!structured) {
      MutateBytes(input, seeds, random);
      continue;
    }
    const size_t size = input.size();
    input.resize(std::max(size, kInputBytesMax));
    input.resize(LLVMFuzzerCustomMutator(reinterpret_cast<uint8_t*>(input.data()), size,
                                         input.size(), static_cast<unsigned int>(random())));
  }
  return input;
}

int RunFiles(int count, char** paths) {
  for (int i = 0; i < count; ++i) {
    std::ifstream file(paths[i], std::ios::binary);
    if (!file) {
      std::fprintf(stderr, "cannot open %s\n", paths[i]);
      return 1;
    }
    Run(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  return 0;
}

int RunMutations() {
  const std::vector<std::string> seeds = Seeds();
  if (seeds.empty()) {
    std::fprintf(stderr, "the target has no seeds\n");
    return 1;
  }
  for (const std::string& seed : seeds) Run(seed);
  Run("");
  const char* wanted = std::getenv("RUNS");
  const int runs = wanted == nullptr ? 2000 : std::atoi(wanted);
  std::mt19937 random(1);  // NOLINT(bugprone-random-generator-seed): the same inputs each time
  for (int i = 0; i < runs; ++i) Run(Mutated(seeds, random));
  std::printf("%zu seeds and %d mutations\n", seeds.size(), runs);
  return 0;
}

}  // namespace
}  // namespace gangway::fuzz

int main(int argc, char** argv) {
  // A corrupt heap does not stop the handler: fprintf allocates nothing here, and the process ends
  // either way.
  (void)std::signal(SIGABRT, gangway::fuzz::OnAbort);
  return argc > 1 ? gangway::fuzz::RunFiles(argc - 1, argv + 1) : gangway::fuzz::RunMutations();
}
