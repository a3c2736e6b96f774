// Registrations of programs: any bytes are a program that can be launched, or an error, in time in proportion to them.
// What is lowered verifies, and survives its text form; what the client sent survives its form on the wire.
#include <functional>
#include <map>
#include <random>

#include "gangway/base/check.h"
#include "gangway/base/fuzz.h"
#include "gangway/program/passes.h"
#include "gangway/program/wire_form.h"
#include "gangway/xla/fuzz_message.h"
#include "gangway/xla/hlo.pb.h"

namespace gangway::fuzz {
namespace {

// Beyond them, the text form takes more time than the rest together.
constexpr uint32_t kPrintedMax = 4096;

std::string Serialized(std::string_view text) {
  wire::Program message;
  const auto program = program::Parse(text);
  GANGWAY_CHECK(program.ok(), "a seed is a program");
  program::ToWire(*program, message);
  return message.SerializeAsString();
}

// Answers anything, but mostly what the program's first call of a function fits to.
class AnyFunctions {
 public:
  explicit AnyFunctions(const program::Program& program) {
    for (const program::Node& node : program.nodes()) {
      if (node.kind == program::Kind::kCall) types_.try_emplace(node.function, TypeFor(node));
    }
    for (const auto& [function, type] : types_) by_name_[program.functions()[function]] = &type;
  }

  absl::StatusOr<const program::FunctionType*> operator()(const std::string& name) const {
    if (name == "13") return absl::NotFoundError("13 is not known");
    return by_name_.at(name);
  }

 private:
  static ArrayShape Shape(uint64_t random) {
    const int64_t elements = random % 16 == 0 ? 3 : 2;
    return {.element_type = xla::TYPE_F32,
            .shard_dims = {elements},
            .shard_bytes = static_cast<uint64_t>(elements) * 4};
  }

  static program::FunctionType TypeFor(const program::Node& node) {
    std::mt19937_64 random(node.function + 1);
    program::FunctionType type{.name = "f"};
    for (size_t i = 0; i < node.inputs.size(); ++i) type.parameters.push_back(Shape(random()));
    for (uint32_t i = 0; i < node.output_count; ++i) type.results.push_back(Shape(random()));
    for (uint32_t i = 0; i < node.inputs.size() + random() % 16 / 15; ++i)
      if (random() % 4 == 0) type.donated.push_back(i);
    const uint64_t devices = random() % 8;  // mostly two: so calls fit together
    for (uint32_t i = devices > 2 ? 2 : static_cast<uint32_t>(devices); i > 0; --i)
      type.devices.push_back(static_cast<uint32_t>(random() % 2 + i * 2));
    return type;
  }

  std::map<program::FunctionId, program::FunctionType> types_;
  std::map<std::string, const program::FunctionType*> by_name_;
};

void CheckText(const program::Program& program) {
  if (program.value_count() > kPrintedMax) return;
  const auto again = program::Parse(program::Print(program));
  GANGWAY_CHECK(again.ok() && *again == program, "a program survives its text form");
}

}  // namespace

std::vector<std::string> Seeds() {
  return {Serialized("program step\n"
                     "%0 = argument\n"
                     "%1 = argument\n"
                     "%2, %3 = call 1(%0, keep %1) from \"t.py:1\"\n"
                     "%4 = transfer %2 @2,3 {pinned_host} from \"t.py:2\"\n"
                     "%5 = call 2(%4)\n"
                     "%6 = view %5[0], %3[1]\n"
                     "%7 = replica of %3\n"
                     "call 3(%6, %7)\n"
                     "result %5\n"
                     "result %6\n"),
          Serialized("%0 = call 4()\n"
                     "%1 = call 5(%0)\n"
                     "%2 = call 5(%1)\n"
                     "%3 = call 6(%0, %2)\n"
                     "result %3\n"),
          Serialized("%0 = argument\n%1 = call 13(%0)\nresult %1\n")};
}

}  // namespace gangway::fuzz

size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t size_max, unsigned int seed) {
  std::mt19937 random(seed);
  const std::string mutated =
      gangway::xla::MutatedMessage<gangway::wire::Program>(gangway::fuzz::View(data, size), random);
  return mutated.copy(reinterpret_cast<char*>(data), size_max);
}

int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  namespace program = gangway::program;
  gangway::wire::Program message;
  if (!message.ParseFromArray(data, static_cast<int>(size))) return 0;
  const auto read = program::FromWire(message);
  if (!read.ok() || !program::Verify(*read).ok()) return 0;
  gangway::fuzz::CheckText(*read);
  gangway::wire::Program written;
  program::ToWire(*read, written);
  const auto again = program::FromWire(written);
  GANGWAY_CHECK(again.ok() && *again == *read, "a program survives its form on the wire");
  const gangway::fuzz::AnyFunctions functions(*read);
  const std::vector<program::ArgumentType> arguments = {{.devices = {2, 4}}, {.devices = {}}};
  const auto lowered = program::Lower(*read, arguments, std::ref(functions));
  if (!lowered.ok()) return 0;
  GANGWAY_CHECK(program::Verify(*lowered).ok(), "what is lowered verifies");
  gangway::fuzz::CheckText(*lowered);
  return 0;
}
