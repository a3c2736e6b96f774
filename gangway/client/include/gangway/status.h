// What became of something that the cluster was asked for: OK, or a failure with its record (ER-1). Result: a value, or
// why there is none. Programs see no status type of another library; the code below this header converts its own
// (StatusTraits).
//
// Threading: values; copies share what they hold, which never changes.
#ifndef GANGWAY_STATUS_H_
#define GANGWAY_STATUS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>

namespace gangway {

// The canonical codes, with their usual numbers.
enum class StatusCode {
  kOk = 0,
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

// The root cause of a failure, as far as it is known: an empty text, 0 and null say nothing.
struct FailureRecord {
  std::string advice;              // what to do
  std::string program;             // name of the compiled program
  std::string source;              // its line: "train.py:42"
  std::string worker;              // "island0/worker1"
  uint64_t gang = 0;               // the launch that failed
  uint64_t incarnation = 0;        // of the worker
  std::optional<uint32_t> device;  // global id
  std::optional<uint32_t> shard;
  std::string launched_program;  // name of the traced program whose launch failed
  std::optional<uint32_t> node;  // its index in that program, the arguments counted
};

// Specialized for the status type of another library, with ToStatus and FromStatus.
template <typename T>
struct StatusTraits {};

// OK, or a failure: its code, its text and its record.
class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  // `code` is not kOk.
  Status(StatusCode code, std::string message, std::shared_ptr<const void> origin = nullptr)
      : failed_(std::make_shared<Failed>(Failed{code, std::move(message), std::move(origin)})) {}
  template <typename T>
    requires requires(const T& other) { StatusTraits<T>::ToStatus(other); }
  Status(const T& other) : Status(StatusTraits<T>::ToStatus(other)) {}  // NOLINT: implicit
  template <typename T>
    requires requires(const Status& status) { StatusTraits<T>::FromStatus(status); }
  operator T() const {  // NOLINT: implicit
    return StatusTraits<T>::FromStatus(*this);
  }

  bool ok() const { return failed_ == nullptr; }
  StatusCode code() const { return ok() ? StatusCode::kOk : failed_->code; }
  // For people: what happened, to what, why, and what to do.
  std::string message() const { return ok() ? std::string() : failed_->message; }
  FailureRecord record() const;
  // The other library's status that it was made from; null: none.
  const void* origin() const { return ok() ? nullptr : failed_->origin.get(); }

 private:
  struct Failed {
    StatusCode code;
    std::string message;
    std::shared_ptr<const void> origin;
  };
  std::shared_ptr<const Failed> failed_;  // null: OK
};

// A T, or the failure that took its place.
template <typename T>
class [[nodiscard]] Result {
 public:
  template <typename U>
    requires std::is_convertible_v<U, T>
  Result(U&& value) : held_(std::in_place_index<1>, std::forward<U>(value)) {}  // NOLINT: implicit
  // Not OK.
  template <typename S>
    requires(std::is_convertible_v<S, Status> && !std::is_convertible_v<S, T>)
  Result(S&& failure)  // NOLINT: implicit
      : held_(std::in_place_index<0>, std::forward<S>(failure)) {}

  bool ok() const { return held_.index() == 1; }
  Status status() const { return ok() ? Status() : std::get<0>(held_); }
  // std::bad_variant_access: it failed.
  T& value() & { return std::get<1>(held_); }
  const T& value() const& { return std::get<1>(held_); }
  T&& value() && { return std::get<1>(std::move(held_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<Status, T> held_;
};

}  // namespace gangway

#endif  // GANGWAY_STATUS_H_
