// Implementation of sim_program.h.
#include "gangway/device/sim/sim_program.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "gangway/base/status.h"
#include "gangway/device/element_type.h"
#include "gangway/xla/hlo.pb.h"
#include "gangway/xla/hlo_text.pb.h"

namespace gangway::device {
namespace {

constexpr int kPartitionsMax = 1 << 20;
constexpr int kRoundsMax = 1 << 20;
constexpr size_t kWordBytes = 4;  // of collectives

uint64_t Mix(uint64_t value) {  // the finalizer of SplitMix64
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

using Words = std::vector<std::string>;

bool ParseCount(const Words& words, size_t index, int64_t max, int64_t* value) {
  return index < words.size() && absl::SimpleAtoi(words[index], value) && *value >= 0 &&
         *value <= max;
}

// "<element type> <dims...> [donates <input>]" from words[1].
bool ParseArray(const Words& words, ArraySpec* spec, int* donated) {
  int64_t value = 0;
  *donated = -1;
  size_t end = words.size();
  if (end >= 2 && words[end - 2] == "donates") {
    if (!ParseCount(words, end - 1, 1 << 20, &value)) return false;
    *donated = static_cast<int>(value);
    end -= 2;
  }
  if (end < 2 || !ParseCount(words, 1, 1 << 10, &value)) return false;
  spec->element_type = static_cast<int32_t>(value);
  for (size_t i = 2; i < end; ++i) {
    if (!ParseCount(words, i, int64_t{1} << 40, &value)) return false;
    spec->dims.push_back(value);
  }
  return HostBytes(*spec).has_value();
}

// "all_reduce <input>" or "permute <input> <shift>".
bool ParseCollective(const Words& words, SimProgram* program) {
  SimCollective collective;
  const bool permutes = words[0] == "permute";
  if (permutes) collective.kind = SimCollective::Kind::kPermute;
  int64_t input = 0, shift = 0;
  if (words.size() != (permutes ? 3u : 2u) || !ParseCount(words, 1, 1 << 20, &input) ||
      (permutes && !ParseCount(words, 2, kPartitionsMax, &shift)))
    return false;
  collective.input = static_cast<int>(input);
  collective.shift = static_cast<int>(shift);
  program->collectives.push_back(collective);
  return true;
}

// "slow <device> <time>" or "fails <device> <number of a collective>".
bool ParseTrouble(const Words& words, SimProgram* program) {
  const bool fails = words[0] == "fails";
  int64_t device = 0, value = 0;
  if (words.size() != 3 || !ParseCount(words, 1, kPartitionsMax, &device) ||
      !ParseCount(words, 2, fails ? kRoundsMax : int64_t{1} << 40, &value))
    return false;
  (fails ? program->failing_device : program->slow_device) = static_cast<int>(device);
  if (fails) {
    program->fails_before = static_cast<int>(value);
  } else {
    program->slow_us = value;
  }
  return true;
}

// False: the statement is unknown or malformed.
bool ParseStatement(const Words& words, SimProgram* program) {
  const std::string& verb = words[0];
  int64_t value = 0;
  if (verb == "name" && words.size() == 2) {
    program->name = words[1];
    return true;
  }
  if (verb == "collective" && words.size() == 1) return program->collective = true;
  if (verb == "partitions" && words.size() == 2) {
    if (!ParseCount(words, 1, kPartitionsMax, &value) || value == 0) return false;
    program->partitions = static_cast<int>(value);
    return true;
  }
  if (verb == "cost_us" && words.size() == 2)
    return ParseCount(words, 1, int64_t{1} << 40, &program->cost_us);
  if (verb == "temp_bytes" && words.size() == 2)
    return ParseCount(words, 1, int64_t{1} << 50, &program->temp_bytes);
  if (verb == "code_bytes" && words.size() == 2)
    return ParseCount(words, 1, int64_t{1} << 30, &program->code_bytes);
  if (verb == "all_reduce" || verb == "permute") return ParseCollective(words, program);
  if (verb == "slow" || verb == "fails") return ParseTrouble(words, program);
  if (verb == "rounds" && words.size() == 2) {
    if (!ParseCount(words, 1, kRoundsMax, &value)) return false;
    program->rounds = static_cast<int>(value);
    return true;
  }
  ArraySpec spec;
  int donated = -1;
  if ((verb != "input" && verb != "output") || !ParseArray(words, &spec, &donated)) return false;
  if (verb == "input") {
    program->inputs.push_back(std::move(spec));
    return donated == -1;
  }
  program->outputs.push_back(std::move(spec));
  program->donated_input.push_back(donated);
  return true;
}

absl::Status CheckDonations(const SimProgram& program) {
  std::vector<bool> taken(program.inputs.size());
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    const int input = program.donated_input[i];
    if (input < 0) continue;
    if (input >= static_cast<int>(program.inputs.size()) || taken[input] ||
        HostBytes(program.inputs[input]) != HostBytes(program.outputs[i])) {
      return absl::InvalidArgumentError(
          absl::StrCat("sim program '", program.name, "': output ", i, " cannot reuse input ",
                       input, ": it does not exist, has another size, or is donated twice"));
    }
    taken[input] = true;
  }
  return absl::OkStatus();
}

absl::Status CheckCollectives(const SimProgram& program) {
  if (program.collectives.empty()) {
    if (program.slow_device < 0 && program.failing_device < 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("sim program '", program.name,
                     "' does not communicate, so it can neither be slow nor fail on a device"));
  }
  bool fit = !program.collective && program.inputs == program.outputs;
  for (size_t i = 0; fit && i < program.outputs.size(); ++i) {
    const int donated = program.donated_input[i];
    fit = donated < 0 || donated == static_cast<int>(i);
  }
  for (const SimCollective& each : program.collectives) {
    if (!fit || each.input >= static_cast<int>(program.inputs.size())) {
      return absl::InvalidArgumentError(absl::StrCat(
          "sim program '", program.name, "' communicates, so it needs an output like each input, ",
          "which donates this input or none, and no 'collective'; input ", each.input,
          " must exist"));
    }
    const size_t bytes = HostBytes(program.inputs[each.input]).value_or(0);
    if (bytes == 0 || bytes % kWordBytes != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("sim program '", program.name, "': input ", each.input, " of ", bytes,
                       " bytes does not consist of words of ", kWordBytes, " bytes"));
    }
  }
  return absl::OkStatus();
}

void AppendArray(std::string* text, std::string_view verb, const ArraySpec& spec) {
  absl::StrAppend(text, std::string(verb), " ", spec.element_type);
  for (int64_t dim : spec.dims) absl::StrAppend(text, " ", dim);
}

// The size of an element, and the mask for its most significant byte that keeps it finite and
// valid.
struct ElementMask {
  size_t bytes;
  std::byte top;
};
ElementMask MaskOf(int32_t type) {
  switch (type) {
    case kPred:
    case kS1:
    case kU1:
      return {1, std::byte{0x01}};
    case kS2:
    case kU2:
      return {1, std::byte{0x03}};
    case kS4:
    case kU4:
    case kF4E2M1FN:
      return {1, std::byte{0x07}};
    case kF16:
    case kBF16:
      return {2, std::byte{0xbf}};  // the exponent's top bit: no infinity, no NaN
    case kF32:
    case kC64:
      return {4, std::byte{0xbf}};
    case kF64:
    case kC128:
      return {8, std::byte{0xbf}};
    case kF8E5M2:
    case kF8E4M3FN:
    case kF8E4M3B11FNUZ:
    case kF8E5M2FNUZ:
    case kF8E4M3FNUZ:
    case kF8E4M3:
    case kF8E3M4:
    case kF8E8M0FNU:
      return {1, std::byte{0x3f}};
    default:
      return {1, std::byte{0xff}};
  }
}

}  // namespace

absl::StatusOr<SimProgram> ParseSimProgram(std::string_view text) {
  SimProgram program;
  int line_number = 0;
  bool versioned = false;
  for (absl::string_view line : absl::StrSplit(absl::string_view(text.data(), text.size()), '\n')) {
    ++line_number;
    line = line.substr(0, line.find('#'));
    const Words words = absl::StrSplit(line, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    const bool first = !versioned;
    versioned = true;
    const bool understood = first ? words == Words{"sim", "1"} : ParseStatement(words, &program);
    if (!understood) {
      return absl::InvalidArgumentError(absl::StrCat("sim program, line ", line_number,
                                                     ": cannot read '", line, "'",
                                                     first ? "; it must begin with 'sim 1'" : ""));
    }
  }
  if (!versioned)
    return absl::InvalidArgumentError("the sim program is empty; it must begin with 'sim 1'");
  GANGWAY_RETURN_IF_ERROR(CheckDonations(program));
  GANGWAY_RETURN_IF_ERROR(CheckCollectives(program));
  return program;
}

std::string HloOf(const SimProgram& program) {
  xla::HloModuleWithConfigProto hlo;
  hlo.mutable_config()->set_num_partitions(program.partitions);
  xla::HloModuleProto& module = *hlo.mutable_module();
  module.set_name(program.name);
  auto set = [](const ArraySpec& spec, xla::ShapeProto& shape) {
    shape.set_element_type(static_cast<xla::PrimitiveType>(spec.element_type));
    shape.mutable_dimensions()->Add(spec.dims.begin(), spec.dims.end());
  };
  xla::ProgramShapeProto& entry = *module.mutable_host_program_shape();
  for (const ArraySpec& input : program.inputs) set(input, *entry.add_parameters());
  entry.mutable_result()->set_element_type(xla::TYPE_TUPLE);
  for (const ArraySpec& output : program.outputs)
    set(output, *entry.mutable_result()->add_tuple_shapes());
  for (const int input : program.donated_input) {
    if (input >= 0) module.mutable_input_output_alias()->add_entries()->set_parameter_number(input);
  }
  std::string bytes = hlo.SerializeAsString();
  if (program.collective || program.communicates()) {
    xla::HloWithConfigTextProto
        body;  // the same message with other fields: the bytes are its continuation
    body.mutable_module()->add_computations()->add_instructions()->set_opcode("all-reduce");
    bytes += body.SerializeAsString();
  }
  return bytes;
}

std::string FormatSimProgram(const SimProgram& program) {
  std::string text =
      absl::StrCat("sim 1\nname ", program.name, "\npartitions ", program.partitions, "\ncost_us ",
                   program.cost_us, "\ntemp_bytes ", program.temp_bytes, "\n");
  if (program.code_bytes > 0) absl::StrAppend(&text, "code_bytes ", program.code_bytes, "\n");
  if (program.collective) text += "collective\n";
  for (const SimCollective& each : program.collectives) {
    if (each.kind == SimCollective::Kind::kAllReduce) {
      absl::StrAppend(&text, "all_reduce ", each.input, "\n");
    } else {
      absl::StrAppend(&text, "permute ", each.input, " ", each.shift, "\n");
    }
  }
  if (program.rounds != 1) absl::StrAppend(&text, "rounds ", program.rounds, "\n");
  if (program.slow_device >= 0)
    absl::StrAppend(&text, "slow ", program.slow_device, " ", program.slow_us, "\n");
  if (program.failing_device >= 0)
    absl::StrAppend(&text, "fails ", program.failing_device, " ", program.fails_before, "\n");
  for (const ArraySpec& input : program.inputs) {
    AppendArray(&text, "input", input);
    text += "\n";
  }
  for (size_t i = 0; i < program.outputs.size(); ++i) {
    AppendArray(&text, "output", program.outputs[i]);
    if (program.donated_input[i] >= 0)
      absl::StrAppend(&text, " donates ", program.donated_input[i]);
    text += "\n";
  }
  return text;
}

uint64_t DigestBytes(uint64_t seed, std::span<const std::byte> bytes) {
  uint64_t digest = Mix(seed ^ bytes.size());
  for (; bytes.size() >= sizeof(uint64_t); bytes = bytes.subspan(sizeof(uint64_t))) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    digest = Mix(digest ^ word);
  }
  uint64_t rest = 0;
  if (!bytes.empty()) std::memcpy(&rest, bytes.data(), bytes.size());
  return Mix(digest ^ rest);
}

uint64_t DigestInputs(const SimProgram& program,
                      std::span<const std::span<const std::byte>> inputs) {
  uint64_t digest = DigestBytes(1, std::as_bytes(std::span(program.name)));
  for (std::span<const std::byte> input : inputs) digest = DigestBytes(digest, input);
  return digest;
}

uint64_t CombineDigests(std::span<const uint64_t> digests) {
  return DigestBytes(2, std::as_bytes(digests));
}

std::vector<std::byte> SimOutput(const SimProgram& program, int index, int position,
                                 uint64_t digest) {
  const ArraySpec& spec = program.outputs[index];
  std::vector<std::byte> bytes(HostBytes(spec).value_or(0));
  const uint64_t key = Mix(digest ^ Mix((uint64_t{static_cast<uint32_t>(index)} << 32) |
                                        static_cast<uint32_t>(position)));
  for (size_t at = 0; at < bytes.size(); at += sizeof(uint64_t)) {
    const uint64_t word = Mix(key + at);
    std::memcpy(bytes.data() + at, &word, std::min(sizeof(word), bytes.size() - at));
  }
  const ElementMask mask = MaskOf(spec.element_type);
  if (mask.top != std::byte{0xff}) {
    for (size_t at = mask.bytes - 1; at < bytes.size(); at += mask.bytes) bytes[at] &= mask.top;
  }
  return bytes;
}

}  // namespace gangway::device
