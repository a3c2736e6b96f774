// Linked into a libFuzzer target: with GANGWAY_FUZZ_SEEDS=FOLDER in the environment, the target
// writes its seeds to that folder and exits, so the repository stores no binary corpus.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "gangway/base/fuzz.h"

// NOLINTNEXTLINE(bugprone-reserved-identifier): libFuzzer's name
extern "C" int LLVMFuzzerInitialize(int*, char***) {
  const char* folder = std::getenv("GANGWAY_FUZZ_SEEDS");
  if (folder == nullptr) return 0;
  int number = 0;
  for (const std::string& seed : gangway::fuzz::Seeds()) {
    std::ofstream file(std::string(folder) + "/seed" + std::to_string(number++), std::ios::binary);
    if (!file.write(seed.data(), static_cast<std::streamsize>(seed.size())).flush()) {
      std::fprintf(stderr, "cannot write a seed into %s\n", folder);
      std::exit(1);
    }
  }
  std::exit(0);
}
