// SHA-256, of bytes that come whole or in pieces.
#ifndef GANGWAY_BASE_SHA256_H_
#define GANGWAY_BASE_SHA256_H_

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

namespace gangway {

// Not thread-safe.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&& other) noexcept;
  Sha256& operator=(Sha256&& other) noexcept;

  void Add(std::string_view bytes);
  // 32 bytes. Nothing may be added after it.
  std::string Finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// 64 hexadecimal digits.
std::string Sha256Hex(std::string_view bytes);

// An unambiguous text of several parts, for a hash over all of them: each is preceded by its length.
std::string JoinForHash(std::initializer_list<std::string_view> parts);

}  // namespace gangway

#endif  // GANGWAY_BASE_SHA256_H_
