// Implementation of Mesh, in the public header sharding.h.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "gangway/client/client.h"
#include "gangway/client/include/gangway/sharding.h"

namespace gangway {

struct api::MeshData {
  std::vector<uint32_t> devices;
  std::vector<MeshAxis> axes;
  Status status;
};

namespace {

std::string Describe(const std::vector<uint32_t>& devices, const std::vector<MeshAxis>& axes) {
  return absl::StrCat(absl::StrJoin(axes, ", ",
                                    [](std::string* to, const MeshAxis& axis) {
                                      absl::StrAppend(to, axis.name, "=", axis.size);
                                    }),
                      axes.empty() ? "devices " : " on devices ", absl::StrJoin(devices, ","));
}

absl::Status Check(const std::vector<uint32_t>& devices, const std::vector<MeshAxis>& axes) {
  const auto refuse = [&](const auto&... why) {
    return absl::InvalidArgumentError(
        absl::StrCat("the mesh ", Describe(devices, axes), " makes no sense: ", why...));
  };
  if (devices.empty()) return absl::InvalidArgumentError("a mesh without devices: name some");
  auto sorted = devices;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    return refuse("device ", *twice, " is in it twice");
  size_t places = 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].size < 1) return refuse("the axis '", axes[i].name, "' has no place");
    for (size_t j = 0; j < i; ++j)
      if (axes[i].name == axes[j].name) return refuse("two axes are named '", axes[i].name, "'");
    if (static_cast<size_t>(axes[i].size) > devices.size() / places)
      return refuse("its axes have more places than there are devices");
    places *= static_cast<size_t>(axes[i].size);
  }
  if (places != devices.size())
    return refuse("its axes have ", places, " places for ", devices.size(), " devices");
  return absl::OkStatus();
}

}  // namespace

Mesh::Mesh() {
  static const auto& none = *new std::shared_ptr<const api::MeshData>(new api::MeshData{
      .status = absl::InvalidArgumentError("there is no mesh: a default-constructed one")});
  data_ = none;
}

Mesh::Mesh(std::vector<uint32_t> devices, std::vector<MeshAxis> axes) {
  Status status = Check(devices, axes);
  data_ = std::make_shared<const api::MeshData>(
      api::MeshData{std::move(devices), std::move(axes), std::move(status)});
}

const std::vector<uint32_t>& Mesh::devices() const { return data_->devices; }
const std::vector<MeshAxis>& Mesh::axes() const { return data_->axes; }
const Status& Mesh::status() const { return data_->status; }

bool Mesh::operator==(const Mesh& other) const {
  return data_ == other.data_ ||
         (data_->devices == other.data_->devices && data_->axes == other.data_->axes);
}

std::string Mesh::ToText() const { return Describe(data_->devices, data_->axes); }

}  // namespace gangway
