// Implementation of layout.h.
#include "gangway/xla/layout.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace gangway::xla {
namespace {

// Most tools accept no more dimensions; a layout of more is malformed.
constexpr int kRankMax = 64;

constexpr char kPjRtLayout[] = "xla::ifrt::PjRtLayout";
constexpr char kCompactLayout[] = "xla::ifrt::CompactLayout";

absl::Status Refuse(const std::string& layout, size_t rank) {
  return absl::UnimplementedError(absl::StrCat(
      "its layout ", layout, " is not the row-major ", RowMajorText(rank),
      " (minor to major) that all arrays of the cluster have: leave the layout out, or "
      "transpose the array instead"));
}

std::string Text(const LayoutProto& layout) {
  return absl::StrCat("{", absl::StrJoin(layout.minor_to_major(), ","), "}");
}

}  // namespace

LayoutProto RowMajor(size_t rank) {
  LayoutProto layout;
  for (size_t i = rank; i > 0; --i) layout.add_minor_to_major(static_cast<int64_t>(i) - 1);
  return layout;
}

std::string RowMajorText(size_t rank) { return Text(RowMajor(rank)); }

absl::Status CheckRowMajor(const LayoutProto& layout, size_t rank) {
  if (layout.tiles_size() == 0 && Text(layout) == RowMajorText(rank)) return absl::OkStatus();
  return Refuse(absl::StrCat(Text(layout), layout.tiles_size() > 0 ? " in tiles" : ""), rank);
}

absl::Status CheckRowMajor(std::string_view text, size_t rank) {
  std::string bare(text);
  absl::RemoveExtraAsciiWhitespace(&bare);
  if (bare.empty() || bare == RowMajorText(rank)) return absl::OkStatus();
  // Sub-byte elements are annotated with their size, which their type tells, too: "{1,0:E(4)}".
  const std::string row_major = RowMajorText(rank);
  const std::string annotated = row_major.substr(0, row_major.size() - 1) + ":E(";
  if (absl::StartsWith(bare, annotated)) return absl::OkStatus();
  return Refuse(bare.substr(0, 200), rank);
}

absl::Status CheckRowMajor(const SerializedProto& layout, size_t rank) {
  if (layout.type_name().empty() && layout.data().empty()) return absl::OkStatus();
  if (layout.type_name() == kPjRtLayout) {
    IfrtPjRtLayoutProto proto;
    if (!proto.ParseFromString(layout.data()))
      return absl::InvalidArgumentError("the layout of an array is malformed");
    return CheckRowMajor(proto.layout(), rank);
  }
  if (layout.type_name() == kCompactLayout) {
    IfrtCompactLayoutProto proto;
    if (!proto.ParseFromString(layout.data()) || proto.major_to_minor_size() > kRankMax)
      return absl::InvalidArgumentError("the layout of an array is malformed");
    LayoutProto reversed;
    for (int i = proto.major_to_minor_size(); i > 0; --i)
      reversed.add_minor_to_major(proto.major_to_minor(i - 1));
    return CheckRowMajor(reversed, rank);
  }
  return absl::UnimplementedError(
      absl::StrCat("a layout of type '", layout.type_name(), "' is not known: leave it out"));
}

}  // namespace gangway::xla
