// Implementation of fuzz_message.h.
#include "gangway/xla/fuzz_message.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <iterator>

namespace gangway::xla {
namespace {

using ::google::protobuf::FieldDescriptor;
using ::google::protobuf::Message;
using ::google::protobuf::Reflection;

constexpr int kDepthMax = 8;

// Random text is rarely UTF-8, and protobuf would log each case.
[[maybe_unused]] auto* const before = google::protobuf::SetLogHandler(nullptr);

// Numbers near the edge cases of arithmetic on sizes, indices and ids.
int64_t Number(std::mt19937& random) {
  constexpr int64_t kEdges[] = {-1,        0,         1,         2,         3,         4,
                                7,         8,         255,       256,       65536,     1 << 20,
                                INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, UINT32_MAX};
  switch (random() % 3) {
    case 0:
      return kEdges[random() % std::size(kEdges)];
    case 1:
      return static_cast<int64_t>(random() % 16);
    default:
      return static_cast<int64_t>(uint64_t{random()} << 32 | random()) >> (random() % 64);
  }
}

std::string Text(std::string text, std::mt19937& random) {
  const size_t at = text.empty() ? 0 : random() % text.size();
  switch (random() % 4) {
    case 0:
      return text.substr(0, at);
    case 1:
      if (!text.empty()) text[at] = static_cast<char>(random());
      return text;
    case 2:
      return text.insert(at, 1, static_cast<char>(' ' + random() % 95));
    default:
      return text + text.substr(0, at);
  }
}

void SetOrAdd(Message& message, const FieldDescriptor* field, std::mt19937& random) {
  const Reflection& reflection = *message.GetReflection();
  const bool repeated = field->is_repeated();
  const int64_t number = Number(random);
  switch (field->cpp_type()) {
#define GANGWAY_CASE(TYPE, NAME, VALUE)                      \
  case FieldDescriptor::TYPE:                                \
    repeated ? reflection.Add##NAME(&message, field, VALUE)  \
             : reflection.Set##NAME(&message, field, VALUE); \
    break
    GANGWAY_CASE(CPPTYPE_INT32, Int32, static_cast<int32_t>(number));
    GANGWAY_CASE(CPPTYPE_INT64, Int64, number);
    GANGWAY_CASE(CPPTYPE_UINT32, UInt32, static_cast<uint32_t>(number));
    GANGWAY_CASE(CPPTYPE_UINT64, UInt64, static_cast<uint64_t>(number));
    GANGWAY_CASE(CPPTYPE_DOUBLE, Double, static_cast<double>(number));
    GANGWAY_CASE(CPPTYPE_FLOAT, Float, static_cast<float>(number));
    GANGWAY_CASE(CPPTYPE_BOOL, Bool, (number & 1) != 0);
    GANGWAY_CASE(CPPTYPE_ENUM, EnumValue, static_cast<int>(number));
#undef GANGWAY_CASE
    case FieldDescriptor::CPPTYPE_STRING:
      if (repeated) {
        reflection.AddString(&message, field, Text("a", random));
      } else {
        reflection.SetString(&message, field, Text(reflection.GetString(message, field), random));
      }
      break;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      if (repeated) {
        reflection.AddMessage(&message, field);
      } else {
        reflection.MutableMessage(&message, field);
      }
      break;
  }
}

void MutateRepeated(Message& message, const FieldDescriptor* field, std::mt19937& random,
                    int depth) {
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, field);
  const int at = size == 0 ? 0 : static_cast<int>(random() % static_cast<unsigned>(size));
  switch (size == 0 ? 0 : random() % 4) {
    case 0:
      return SetOrAdd(message, field, random);
    case 1:
      return reflection.RemoveLast(&message, field);
    case 2:
      return reflection.SwapElements(&message, field, at, size - 1);
    default:
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && depth < kDepthMax) {
        return MutateMessage(*reflection.MutableRepeatedMessage(&message, field, at), random,
                             depth + 1);
      }
      reflection.SwapElements(&message, field, at, size - 1);
      reflection.RemoveLast(&message, field);
      SetOrAdd(message, field, random);
  }
}

}  // namespace

void MutateMessage(Message& message, std::mt19937& random, int depth) {
  const auto& descriptor = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  if (descriptor.field_count() == 0) return;
  // Set fields are mutated more often than new ones are added.
  std::vector<const FieldDescriptor*> set;
  reflection.ListFields(message, &set);
  std::erase_if(set, [](const FieldDescriptor* field) { return field->is_map(); });
  const FieldDescriptor* field =
      set.empty() || random() % 4 == 0
          ? descriptor.field(
                static_cast<int>(random() % static_cast<unsigned>(descriptor.field_count())))
          : set[random() % set.size()];
  if (field->is_map()) return;
  if (field->is_repeated()) return MutateRepeated(message, field, random, depth);
  if (random() % 8 == 0) return reflection.ClearField(&message, field);
  if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && depth < kDepthMax &&
      reflection.HasField(message, field)) {
    return MutateMessage(*reflection.MutableMessage(&message, field), random, depth + 1);
  }
  SetOrAdd(message, field, random);
}

}  // namespace gangway::xla
