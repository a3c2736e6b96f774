// Implementation of sharding_text.h.
#include "gangway/compiler/check_calls/sharding_text.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"

#include "gangway/base/status.h"
#include "gangway/compiler/check_calls/text_scanner.h"

namespace gangway::compiler::calls {
namespace {

absl::Status Malformed(std::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("its text of shardings is malformed: ",
                                                 absl::string_view(what.data(), what.size())));
}

absl::Status CheckSize(std::string_view text) {
  return text.size() <= kShardingTextBytesMax ? absl::OkStatus() : Malformed("it is too long");
}

class Parser {
 public:
  explicit Parser(std::string_view text) : scanner_(text) {}

  absl::StatusOr<TextMeshes> Meshes() {
    TextMeshes meshes;
    if (!scanner_.Take("{")) return Malformed("meshes begin with {");
    while (!scanner_.NextIs("}")) {
      if (!meshes.empty() && !scanner_.Take(",")) return Malformed("a , between meshes");
      std::optional<std::string> name = Symbol();
      if (!name || !scanner_.Take("=") || !scanner_.Take("#sdy.mesh"))
        return Malformed("a mesh is name = #sdy.mesh<...>");
      GANGWAY_ASSIGN_OR_RETURN(TextMesh mesh, Mesh());
      if (!meshes.emplace(*std::move(name), std::move(mesh)).second)
        return Malformed("a mesh comes twice");
    }
    scanner_.Take("}");
    if (!scanner_.AtEnd()) return Malformed("something follows the meshes");
    return meshes;
  }

  absl::StatusOr<std::vector<TextSharding>> Shardings(const TextMeshes& meshes) {
    std::vector<TextSharding> shardings;
    if (!scanner_.Take("#sdy.sharding_per_value<[")) return Malformed("no sharding_per_value");
    while (!scanner_.NextIs("]")) {
      if (!shardings.empty() && !scanner_.Take(",")) return Malformed("a , between shardings");
      GANGWAY_ASSIGN_OR_RETURN(TextSharding sharding, Sharding(meshes));
      shardings.push_back(std::move(sharding));
    }
    if (!scanner_.Take("]>") || !scanner_.AtEnd()) return Malformed("shardings end with ]>");
    return shardings;
  }

  absl::StatusOr<std::vector<TextSharding>> ShardingsOf(const TextMeshes& meshes) {
    if (!scanner_.NextIs("#sdy.sharding<")) return Shardings(meshes);
    scanner_.Take("#sdy.sharding");
    GANGWAY_ASSIGN_OR_RETURN(TextSharding sharding, Sharding(meshes));
    if (!scanner_.AtEnd()) return Malformed("something follows the sharding");
    return std::vector<TextSharding>{std::move(sharding)};
  }

  absl::StatusOr<std::vector<std::string>> ManualAxes() {
    std::vector<std::string> axes;
    if (!scanner_.Take("#sdy<manual_axes{")) return Malformed("no manual_axes");
    while (!scanner_.NextIs("}")) {
      if (!axes.empty() && !scanner_.Take(",")) return Malformed("a , between axes");
      std::optional<std::string> axis = scanner_.String();
      if (!axis || std::ranges::count(axes, *axis) != 0)
        return Malformed("an axis is \"name\", once");
      axes.push_back(*std::move(axis));
      if (axes.size() > kMeshAxesMax) return Malformed("too many axes");
    }
    if (!scanner_.Take("}>") || !scanner_.AtEnd()) return Malformed("axes end with }>");
    return axes;
  }

 private:
  std::optional<std::string> Symbol() {
    if (scanner_.NextIs("\"")) return scanner_.String();
    const std::string_view word = scanner_.Word();
    if (word.empty()) return std::nullopt;
    return std::string(word);
  }

  // <["a"=2, "b"=4], device_ids=[...]>
  absl::StatusOr<TextMesh> Mesh() {
    TextMesh mesh;
    if (!scanner_.Take("<[")) return Malformed("a mesh begins with <[");
    while (!scanner_.NextIs("]")) {
      if (!mesh.axes.empty() && !scanner_.Take(",")) return Malformed("a , between axes");
      std::optional<std::string> axis = scanner_.String();
      const std::optional<int64_t> size =
          axis && scanner_.Take("=") ? scanner_.Integer() : std::nullopt;
      if (!size || *size < 1 || __builtin_mul_overflow(mesh.positions, *size, &mesh.positions) ||
          mesh.positions > kMeshPositionsMax)
        return Malformed("an axis is \"name\"=size, and their product has a limit");
      if (!mesh.axes.emplace(*std::move(axis), *size).second || mesh.axes.size() > kMeshAxesMax)
        return Malformed("an axis comes twice, or too many");
    }
    scanner_.Take("]");
    if (scanner_.Take(",")) {
      if (!scanner_.Take("device_ids") || !scanner_.Take("=") || !scanner_.Take("["))
        return Malformed("only device_ids follow the axes of a mesh");
      GANGWAY_RETURN_IF_ERROR(DeviceIds(mesh));
    }
    if (!scanner_.Take(">")) return Malformed("a mesh ends with >");
    return mesh;
  }

  // Each position of the mesh once; one device, if it has no axes.
  absl::Status DeviceIds(const TextMesh& mesh) {
    std::set<int64_t> seen;
    int64_t count = 0;
    while (const std::optional<int64_t> id = scanner_.Integer()) {
      const int64_t limit = mesh.axes.empty() ? kMeshPositionsMax : mesh.positions;
      if (*id < 0 || *id >= limit || ++count > mesh.positions)
        return Malformed("its device_ids are not those of its positions");
      if (!mesh.axes.empty() && !seen.insert(*id).second)
        return Malformed("a device_id comes twice");
      if (!scanner_.Take(",")) break;
    }
    if (count != mesh.positions || !scanner_.Take("]"))
      return Malformed("its device_ids are not one for each position");
    return absl::OkStatus();
  }

  // <@mesh, [{"a"}, {"b":(1)2, ?}p1], replicated={"c"}, unreduced={}>
  absl::StatusOr<TextSharding> Sharding(const TextMeshes& meshes) {
    TextSharding sharding;
    if (!scanner_.Take("<")) return Malformed("a sharding begins with <");
    if (scanner_.Take("@")) {
      const std::optional<std::string> name = Symbol();
      const auto found = name ? meshes.find(*name) : meshes.end();
      if (found == meshes.end()) return Malformed("it names a mesh that the program does not have");
      sharding.mesh = found->second;
    } else {
      if (!scanner_.Take("mesh")) return Malformed("a sharding has no mesh");
      GANGWAY_ASSIGN_OR_RETURN(sharding.mesh, Mesh());
    }
    used_.clear();
    if (!scanner_.Take(",") || !scanner_.Take("["))
      return Malformed("a sharding has no dimensions");
    while (!scanner_.NextIs("]")) {
      if (!sharding.dims.empty() && !scanner_.Take(",")) return Malformed("a , between dimensions");
      GANGWAY_ASSIGN_OR_RETURN(std::vector<AxisUse> dim, Axes(sharding.mesh));
      if (scanner_.NextIs("p") &&
          scanner_.Word().find_first_not_of("p0123456789") != std::string_view::npos)
        return Malformed("after a dimension comes its priority");
      sharding.dims.push_back(std::move(dim));
    }
    scanner_.Take("]");
    while (scanner_.Take(",")) {
      if (!scanner_.Take("replicated") && !scanner_.Take("unreduced"))
        return Malformed("unknown part of a sharding");
      if (!scanner_.Take("=")) return Malformed("a part of a sharding has no value");
      GANGWAY_RETURN_IF_ERROR(Axes(sharding.mesh));
    }
    if (!scanner_.Take(">")) return Malformed("a sharding ends with >");
    return sharding;
  }

  absl::StatusOr<std::vector<AxisUse>> Axes(const TextMesh& mesh) {
    std::vector<AxisUse> axes;
    if (!scanner_.Take("{")) return Malformed("axes begin with {");
    while (!scanner_.NextIs("}")) {
      if (!is_first_ && !scanner_.Take(",")) return Malformed("a , between axes");
      is_first_ = false;
      if (scanner_.Take("?")) break;
      GANGWAY_ASSIGN_OR_RETURN(AxisUse use, Axis(mesh));
      axes.push_back(std::move(use));
    }
    is_first_ = true;
    if (!scanner_.Take("}")) return Malformed("axes end with }");
    return axes;
  }

  absl::StatusOr<AxisUse> Axis(const TextMesh& mesh) {
    std::optional<std::string> name = scanner_.String();
    const auto found = name ? mesh.axes.find(*name) : mesh.axes.end();
    if (found == mesh.axes.end()) return Malformed("it names an axis that its mesh does not have");
    AxisUse use{found->first, found->second};
    int64_t before = 0;
    if (scanner_.Take(":")) {
      const auto first = scanner_.Take("(") ? scanner_.Integer() : std::nullopt;
      const auto size = first && scanner_.Take(")") ? scanner_.Integer() : std::nullopt;
      int64_t least = 0;
      if (!size || *first < 1 || *size < 2 || __builtin_mul_overflow(*first, *size, &least) ||
          found->second % least != 0)
        return Malformed("a part of an axis is \"name\":(before)size");
      before = *first;
      use.size = *size;
    }
    // A whole axis excludes its parts, and a part itself.
    for (const auto& [axis, part] : used_)
      if (axis == use.axis && (before == 0 || part == 0 || part == before))
        return Malformed("it uses an axis twice");
    used_.emplace(use.axis, before);
    return use;
  }

  TextScanner scanner_;
  bool is_first_ = true;
  std::set<std::pair<std::string, int64_t>>
      used_;  // of the sharding that is read: axis, and where the part begins
};

}  // namespace

absl::StatusOr<TextMeshes> ParseMeshes(std::string_view text) {
  GANGWAY_RETURN_IF_ERROR(CheckSize(text));
  return Parser(text).Meshes();
}

absl::StatusOr<std::vector<TextSharding>> ParseShardings(std::string_view text,
                                                         const TextMeshes& meshes) {
  GANGWAY_RETURN_IF_ERROR(CheckSize(text));
  return Parser(text).Shardings(meshes);
}

absl::StatusOr<std::vector<TextSharding>> ParseShardingsOf(std::string_view text,
                                                           const TextMeshes& meshes) {
  GANGWAY_RETURN_IF_ERROR(CheckSize(text));
  return Parser(text).ShardingsOf(meshes);
}

absl::StatusOr<std::vector<std::string>> ParseManualAxes(std::string_view text) {
  GANGWAY_RETURN_IF_ERROR(CheckSize(text));
  return Parser(text).ManualAxes();
}

}  // namespace gangway::compiler::calls
