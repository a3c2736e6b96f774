// What the examples have in common: they end, with the reason, at the first failure.
#ifndef EXAMPLES_CPP_EXAMPLE_H_
#define EXAMPLES_CPP_EXAMPLE_H_

#include <gangway/gangway.h>

#include <cstdlib>
#include <iostream>
#include <utility>
#include <vector>

inline void Check(const gangway::Status& status) {
  if (status.ok()) return;
  std::cerr << status.message() << "\n";
  std::exit(1);
}

template <typename T>
T Value(gangway::Result<T> result) {
  Check(result.status());
  return std::move(*result);
}

inline std::vector<float> Floats(const gangway::Array& array) { return Value(array.Get<float>()); }

// The program's first arguments are ADDRESS and TOKEN. A cluster of this host has the address unix:FOLDER/control.sock,
// and its token in the file FOLDER/token, where FOLDER is its part of the state folder.
inline gangway::Cluster Open(int argc, char** argv, const char* name) {
  if (argc >= 3)
    return Value(gangway::Connect({.address = argv[1], .token = argv[2], .name = name}));
  std::cerr << "usage: " << name << " ADDRESS TOKEN\n";
  std::exit(2);
}

#endif  // EXAMPLES_CPP_EXAMPLE_H_
