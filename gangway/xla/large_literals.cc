// Implementation of large_literals.h. It walks the message's bytes: a parser would copy the literals.
#include "gangway/xla/large_literals.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <climits>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string_view>

namespace gangway::xla {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

// The fields that lead to an instruction's literal.
constexpr uint32_t kPath[] = {
    1,  // HloModuleProtoWithConfig.hlo_module
    3,  // HloModuleProto.computations
    2,  // HloComputationProto.instructions
    8,  // HloInstructionProto.literal
};
constexpr size_t kLiteral = std::size(kPath) - 1;

void AppendVarint(uint64_t value, std::string& to) {
  for (; value >= 0x80; value >>= 7) to += static_cast<char>(value | 0x80);
  to += static_cast<char>(value);
}

// `message` at this depth of the path, without large literals; nothing if it is malformed.
std::optional<std::string> Shorten(std::string_view message, size_t bytes_max, size_t depth) {
  if (message.size() <= bytes_max) return std::string(message);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(message.data());
  CodedInputStream stream(bytes, static_cast<int>(message.size()));
  std::string shortened;
  size_t kept = 0;  // up to there, `message` is in `shortened`, or left out
  while (true) {
    const auto begin = static_cast<size_t>(stream.CurrentPosition());
    const uint32_t tag = stream.ReadTag();
    if (tag == 0) break;
    if (tag != WireFormatLite::MakeTag(static_cast<int>(kPath[depth]),
                                       WireFormatLite::WIRETYPE_LENGTH_DELIMITED)) {
      if (!WireFormatLite::SkipField(&stream, tag)) return std::nullopt;
      continue;
    }
    uint32_t size = 0;
    if (!stream.ReadVarint32(&size)) return std::nullopt;
    const auto at = static_cast<size_t>(stream.CurrentPosition());
    if (size > message.size() - at || !stream.Skip(static_cast<int>(size))) return std::nullopt;
    if (size <= bytes_max) continue;
    shortened += message.substr(kept, begin - kept);
    kept = at + size;
    if (depth == kLiteral) continue;
    const std::optional<std::string> field =
        Shorten(message.substr(at, size), bytes_max, depth + 1);
    if (!field) return std::nullopt;
    AppendVarint(tag, shortened);
    AppendVarint(field->size(), shortened);
    shortened += *field;
  }
  if (!stream.ConsumedEntireMessage()) return std::nullopt;
  shortened += message.substr(kept);
  return shortened;
}

}  // namespace

std::string WithoutLargeLiterals(std::string hlo_with_config, size_t bytes_max) {
  if (hlo_with_config.size() <= bytes_max || hlo_with_config.size() > INT_MAX)
    return hlo_with_config;
  auto shortened = Shorten(hlo_with_config, bytes_max, 0);
  return shortened ? *std::move(shortened) : hlo_with_config;
}

}  // namespace gangway::xla
