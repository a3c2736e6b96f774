// For tests and fuzzing: modules that XLA's converter made of JAX's functions (tests/hlo_modules.py writes them).
#ifndef GANGWAY_COMPILER_CHECK_CORPUS_H_
#define GANGWAY_COMPILER_CHECK_CORPUS_H_

#include <google/protobuf/io/gzip_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

namespace gangway::compiler {

// Serialized HloModuleProtos; none, if the file is missing. In it, each is behind its size, and all are compressed.
inline std::vector<std::string> Corpus() {
  std::ifstream file(GANGWAY_TESTDATA "/jax_modules.bin.gz", std::ios::binary);
  google::protobuf::io::IstreamInputStream compressed(&file);
  google::protobuf::io::GzipInputStream stream(&compressed);
  std::string all;
  const void* data = nullptr;
  int size = 0;
  while (stream.Next(&data, &size))
    all.append(static_cast<const char*>(data), static_cast<size_t>(size));
  std::vector<std::string> modules;
  for (size_t at = 0; at + 4 <= all.size();) {
    uint32_t length = 0;
    std::memcpy(&length, all.data() + at, sizeof(length));
    modules.push_back(all.substr(at + 4, length));
    at += 4 + length;
  }
  return modules;
}

}  // namespace gangway::compiler

#endif  // GANGWAY_COMPILER_CHECK_CORPUS_H_
