// Implementation of stored_program.h. The bytes: magic bytes with the version, the SHA-256 of the rest in hex, then
// each text after its length in 8 bytes, little-endian.
#include "gangway/frontdoor/pjrt/stored_program.h"

#include <cstdint>
#include <utility>

#include "gangway/base/sha256.h"
#include "gangway/base/status.h"

namespace gangway::pjrt {
namespace {

constexpr std::string_view kMagic = "GANGWAYP";
constexpr char kVersion = '3';
constexpr size_t kHashBytes = 64;
constexpr size_t kHeaderBytes = kMagic.size() + 1 + kHashBytes;
constexpr size_t kLengthBytes = 8;

void Append(std::string_view text, std::string& to) {
  for (size_t i = 0; i < kLengthBytes; ++i)
    to += static_cast<char>((uint64_t{text.size()} >> (8 * i)) & 255);
  to += text;
}

absl::StatusOr<std::string> Take(std::string_view& bytes) {
  absl::Status cut = absl::InvalidArgumentError("the serialized executable is cut short");
  if (bytes.size() < kLengthBytes) return cut;
  uint64_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i)
    size |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
  bytes.remove_prefix(kLengthBytes);
  if (size > bytes.size()) return cut;
  std::string text(bytes.substr(0, static_cast<size_t>(size)));
  bytes.remove_prefix(static_cast<size_t>(size));
  return text;
}

}  // namespace

std::string Store(const StoredProgram& stored) {
  std::string rest;
  rest.reserve(stored.program.size() + stored.format.size() + stored.options.size() +
               stored.layouts.size() + 4 * kLengthBytes);
  Append(stored.format, rest);
  Append(stored.options, rest);
  Append(stored.layouts, rest);
  Append(stored.program, rest);
  std::string bytes(kMagic);
  bytes += kVersion;
  bytes += Sha256Hex(rest);
  return bytes + rest;
}

absl::StatusOr<StoredProgram> ReadStored(std::string_view bytes) {
  if (!bytes.starts_with(kMagic)) {
    return absl::InvalidArgumentError(
        "these bytes are no executable that Gangway serialized: compile the program again");
  }
  if (bytes.size() < kHeaderBytes)
    return absl::InvalidArgumentError("the serialized executable is cut short");
  if (bytes[kMagic.size()] != kVersion) {
    return absl::FailedPreconditionError(
        "another version of Gangway serialized this executable: compile the program again");
  }
  const std::string_view hash = bytes.substr(kMagic.size() + 1, kHashBytes);
  bytes.remove_prefix(kHeaderBytes);
  if (hash != Sha256Hex(bytes)) {
    return absl::InvalidArgumentError(
        "the serialized executable is damaged: its checksum differs. Compile the program again");
  }
  StoredProgram stored;
  GANGWAY_ASSIGN_OR_RETURN(stored.format, Take(bytes));
  GANGWAY_ASSIGN_OR_RETURN(stored.options, Take(bytes));
  GANGWAY_ASSIGN_OR_RETURN(stored.layouts, Take(bytes));
  GANGWAY_ASSIGN_OR_RETURN(stored.program, Take(bytes));
  if (!bytes.empty())
    return absl::InvalidArgumentError("the serialized executable is longer than what it holds");
  return stored;
}

}  // namespace gangway::pjrt
