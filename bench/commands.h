// The commands by which the scripts of this folder drive a program: a line "CASE<tab>COUNT" on stdin, answered by a
// line of JSON. Header-only; one thread.
#ifndef BENCH_COMMANDS_H_
#define BENCH_COMMANDS_H_

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <optional>
#include <string>

namespace gangway::bench {

// What an answer tells.
struct Ran {
  double seconds = 0;
  std::string more = {};  // further members of the JSON object, each after a comma
};

// Makes COUNT operations of the case. None: it has no such case.
using RunCase = std::function<std::optional<Ran>(const std::string& name, int count)>;

// How long `run` takes.
inline double SecondsOf(const std::function<void()>& run) {
  const auto began = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
}

// Returns the exit status of the program: 0 at the end of stdin, 1 at a line that names no case.
inline int ServeCommands(const RunCase& run) {
  std::cout << "{\"ready\": true}" << std::endl;
  for (std::string name, count;
       std::getline(std::cin, name, '\t') && std::getline(std::cin, count);) {
    const std::optional<Ran> ran = run(name, std::atoi(count.c_str()));
    if (!ran) {
      std::cerr << "not a case: " << name << "\n";
      return 1;
    }
    std::printf("{\"seconds\": %.9f%s}\n", ran->seconds, ran->more.c_str());
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace gangway::bench

#endif  // BENCH_COMMANDS_H_
