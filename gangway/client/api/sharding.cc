// Implementation of Sharding, in the public header sharding.h.
#include "gangway/sharding.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/base/status.h"
#include "gangway/client/client.h"

namespace gangway {

struct api::ShardingData {
  // For each dimension that it may split: in how many parts, and which part each position has.
  struct Dimension {
    int64_t parts = 1;
    std::vector<int64_t> part_of;  // by position
  };

  Mesh mesh;
  std::vector<Split> splits;
  Status status;
  std::vector<Dimension> dimensions;
};

namespace {

std::string Describe(const Mesh& mesh, const std::vector<Split>& splits) {
  const auto append = [](std::string* to, const Split& split) {
    absl::StrAppend(to, split.axes.empty() ? "-" : absl::StrJoin(split.axes, "+"));
  };
  return absl::StrCat("(", absl::StrJoin(splits, ", ", append), ") over ", mesh.ToText());
}

// An axis, and how many positions are between neighbours on it.
struct Stride {
  const MeshAxis* axis;
  size_t step;
};

std::optional<Stride> FindAxis(const Mesh& mesh, const std::string& name) {
  size_t step = 1;
  for (size_t i = mesh.axes().size(); i-- > 0;) {
    if (mesh.axes()[i].name == name) return Stride{&mesh.axes()[i], step};
    step *= static_cast<size_t>(mesh.axes()[i].size);
  }
  return std::nullopt;
}

absl::Status Check(const Mesh& mesh, const std::vector<Split>& splits) {
  if (!mesh.status().ok()) return mesh.status();
  std::vector<std::string> used;
  for (const Split& split : splits) {
    for (const std::string& name : split.axes) {
      const bool is_known = FindAxis(mesh, name).has_value();
      if (is_known && !std::ranges::count(used, name)) {
        used.push_back(name);
        continue;
      }
      return absl::InvalidArgumentError(absl::StrCat(
          "the sharding ", Describe(mesh, splits), " makes no sense: ",
          is_known ? "it splits twice by the axis '" : "the mesh has no axis '", name, "'"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

Sharding::Sharding() {
  static const auto& none = *new std::shared_ptr<const api::ShardingData>(
      new api::ShardingData{.status = Mesh().status(), .dimensions = {}});
  data_ = none;
}

Sharding::Sharding(Mesh mesh, std::vector<Split> splits) {
  auto data = std::make_shared<api::ShardingData>();
  data->status = Check(mesh, splits);
  if (data->status.ok()) {
    for (const Split& split : splits) {
      api::ShardingData::Dimension& dimension = data->dimensions.emplace_back();
      dimension.part_of.assign(mesh.devices().size(), 0);
      for (const std::string& name : split.axes) {
        const Stride stride = *FindAxis(mesh, name);
        dimension.parts *= stride.axis->size;
        for (size_t i = 0; i < dimension.part_of.size(); ++i) {
          int64_t& part = dimension.part_of[i];
          part =
              part * stride.axis->size + static_cast<int64_t>(i / stride.step) % stride.axis->size;
        }
      }
    }
  }
  data->mesh = std::move(mesh);
  data->splits = std::move(splits);
  data_ = std::move(data);
}

const Mesh& Sharding::mesh() const { return data_->mesh; }
const std::vector<Split>& Sharding::splits() const { return data_->splits; }
const Status& Sharding::status() const { return data_->status; }

int64_t Sharding::Parts(size_t dimension) const {
  return dimension < data_->dimensions.size() ? data_->dimensions[dimension].parts : 1;
}

Result<Shape> Sharding::ShardShape(std::span<const int64_t> shape) const {
  if (!status().ok()) return status();
  Shape shard(shape.begin(), shape.end());
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("an array of shape ", gangway::ToText(Shape(shape.begin(), shape.end())),
                     " cannot be split as ", ToText(), ": ", why...));
  };
  for (size_t d = 0; d < data_->splits.size(); ++d) {
    const int64_t parts = Parts(d);
    if (d >= shard.size()) {
      if (parts == 1) continue;
      return refuse("it has no dimension ", d);
    }
    if (shard[d] % parts != 0)
      return refuse("dimension ", d, " of size ", shard[d], " is not divisible by ", parts);
    shard[d] /= parts;
  }
  for (size_t d = 0; d < shard.size(); ++d)
    if (shard[d] < 0) return refuse("dimension ", d, " has a negative size");
  return shard;
}

Result<ShardRange> Sharding::RangeOf(size_t position, std::span<const int64_t> shape) const {
  Result<Shape> shard = ShardShape(shape);
  if (!shard.ok()) return shard.status();
  if (position >= mesh().devices().size())
    return absl::OutOfRangeError(
        absl::StrCat("position ", position, " of a mesh of ", mesh().devices().size(), " devices"));
  ShardRange range{.offset = std::vector<int64_t>(shape.size(), 0), .shape = std::move(*shard)};
  for (size_t d = 0; d < std::min(shape.size(), data_->dimensions.size()); ++d)
    range.offset[d] = data_->dimensions[d].part_of[position] * range.shape[d];
  return range;
}

std::string Sharding::ToAttribute(size_t rank) const {
  std::vector<int64_t> parts(rank, 1);
  int64_t tiles = 1;
  for (size_t d = 0; d < rank; ++d) tiles *= parts[d] = Parts(d);
  if (!status().ok() || tiles <= 1) return "{replicated}";
  // By tile, the positions that hold it.
  std::vector<std::vector<size_t>> positions(static_cast<size_t>(tiles));
  const size_t count = mesh().devices().size();
  for (size_t i = 0; i < count; ++i) {
    size_t tile = 0;
    for (size_t d = 0; d < rank; ++d) {
      const int64_t part = d < data_->dimensions.size() ? data_->dimensions[d].part_of[i] : 0;
      tile = tile * static_cast<size_t>(parts[d]) + static_cast<size_t>(part);
    }
    positions[tile].push_back(i);
  }
  const size_t copies = count / static_cast<size_t>(tiles);
  const auto append = [](std::string* to, const std::vector<size_t>& of_tile) {
    absl::StrAppend(to, absl::StrJoin(of_tile, ","));
  };
  return absl::StrCat(
      "{devices=[", absl::StrJoin(parts, ","), copies > 1 ? absl::StrCat(",", copies) : "", "]",
      absl::StrJoin(positions, ",", append), copies > 1 ? " last_tile_dim_replicate}" : "}");
}

bool Sharding::operator==(const Sharding& other) const {
  return data_ == other.data_ || (mesh() == other.mesh() && splits() == other.splits());
}

std::string Sharding::ToText() const { return Describe(mesh(), splits()); }

std::string ToText(const Shape& shape) { return absl::StrCat("[", absl::StrJoin(shape, ","), "]"); }

}  // namespace gangway
