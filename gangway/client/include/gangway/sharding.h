// Where the elements of an array are: a Mesh is an ordered list of devices with named axes, and a Sharding says which
// axes of a mesh split which dimensions of an array, as JAX's Mesh and PartitionSpec do.
//
//   Mesh mesh({0, 1, 2, 3}, {{"data", 2}, {"model", 2}});   // devices 0 and 1 have the first place on "data"
//   Sharding rows(mesh, {"data"});                          // dimension 0 in two parts, each on two devices
//   Sharding blocks(mesh, {"data", "model"});               // a block on each device
//   Sharding flat(mesh, {{"data", "model"}});               // dimension 0 in four parts
//   Sharding whole(mesh);                                   // all of it on each device
//
// Threading: values that never change; copies share what they hold.
// Failure: a mesh or a sharding that makes no sense says why (status), and so does each array that is made with it.
#ifndef GANGWAY_SHARDING_H_
#define GANGWAY_SHARDING_H_

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "status.h"

namespace gangway {

namespace api {
struct MeshData;
struct ShardingData;
}  // namespace api

// Sizes of the dimensions of an array, the outermost first, in elements. Empty: a scalar.
using Shape = std::vector<int64_t>;

// "[2,3]"
std::string ToText(const Shape& shape);

// An axis of a mesh.
struct MeshAxis {
  std::string name;
  int64_t size = 0;  // places on it
  bool operator==(const MeshAxis&) const = default;
};

// An ordered list of devices with named axes. Their places on the axes are row-major: along the last axis, neighbours
// in the list are neighbours in the mesh.
class Mesh {
 public:
  // No devices: of no use.
  Mesh();
  // The numbers of devices (DeviceInfo::id), each once, as many as the product of the axes' sizes; the axes have
  // different names. Otherwise status() is INVALID_ARGUMENT.
  Mesh(std::vector<uint32_t> devices, std::vector<MeshAxis> axes);

  const std::vector<uint32_t>& devices() const;
  const std::vector<MeshAxis>& axes() const;
  // OK, or why it makes no sense.
  const Status& status() const;

  // The same devices in the same order, and the same axes.
  bool operator==(const Mesh& other) const;
  // "data=2, model=2 on devices 0,1,2,3"
  std::string ToText() const;

 private:
  std::shared_ptr<const api::MeshData> data_;
};

// The axes that split one dimension, the outermost first. None: the dimension is whole on each device.
struct Split {
  std::vector<std::string> axes;

  Split() = default;
  Split(const char* axis) : axes({axis}) {}             // NOLINT: implicit
  Split(std::string axis) : axes({std::move(axis)}) {}  // NOLINT: implicit
  Split(std::initializer_list<std::string> several) : axes(several) {}
  bool operator==(const Split&) const = default;
};

// Where one shard is in its array, for each dimension, in elements.
struct ShardRange {
  std::vector<int64_t> offset;
  Shape shape;
  bool operator==(const ShardRange&) const = default;
};

// How the dimensions of an array are spread over a mesh. It fits arrays of any shape that has at least the dimensions
// which it splits, each of a size that the parts divide.
class Sharding {
 public:
  // Of no mesh: of no use.
  Sharding();
  // `splits`: by dimension; dimensions behind the last one are not split. Axes that split no dimension hold copies. An
  // axis that the mesh does not have, or that is named twice: status() is INVALID_ARGUMENT, as it is for the mesh's.
  explicit Sharding(Mesh mesh, std::vector<Split> splits = {});

  const Mesh& mesh() const;
  const std::vector<Split>& splits() const;
  // OK, or why it makes no sense.
  const Status& status() const;

  // In how many parts it splits this dimension. 1 for dimensions that it does not split.
  int64_t Parts(size_t dimension) const;
  // The shape of each shard. INVALID_ARGUMENT: it does not fit arrays of this shape.
  Result<Shape> ShardShape(std::span<const int64_t> shape) const;
  // Where the shard on mesh().devices()[position] is in an array of this shape, which it fits. OUT_OF_RANGE: there is
  // no such position. INVALID_ARGUMENT: it does not fit.
  Result<ShardRange> RangeOf(size_t position, std::span<const int64_t> shape) const;
  // The value of StableHLO's attribute `mhlo.sharding` for an array of `rank` dimensions, without quotes:
  // "{devices=[2,1]0,1}", "{replicated}". For the text of a Function of the mode kPartitioned.
  std::string ToAttribute(size_t rank) const;

  // The same mesh, and the same axes for each dimension.
  bool operator==(const Sharding& other) const;
  // "(data, -) over data=2, model=2 on devices 0,1,2,3"
  std::string ToText() const;

 private:
  std::shared_ptr<const api::ShardingData> data_;
};

}  // namespace gangway

#endif  // GANGWAY_SHARDING_H_
