// Implementation of latency_request.h.
#include "gangway/base/latency_request.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "gangway/base/world.h"

namespace gangway {
namespace {

constexpr char kFile[] = "/dev/cpu_dma_latency";
constexpr char kVariable[] = "GANGWAY_LATENCY_REQUEST";

LatencyRequest* of_process = nullptr;  // for the fork's handlers

// What may be available later.
bool IsShortage(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR;
}

}  // namespace

std::string LatencyRequestFile() {
  const char* value = std::getenv(kVariable);
  if (value == nullptr || *value == '\0' || std::string_view(value) == "1") return kFile;
  return std::string_view(value) == "0" ? "" : value;
}

FileDescriptor OpenLatencyRequest(const std::string& file) {
  // A user may name anything: without O_NONBLOCK, a FIFO would stop the caller.
  FileDescriptor opened(open(file.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  const int32_t latency_us = 0;
  if (!opened.valid() || write(opened.get(), &latency_us, sizeof(latency_us)) < 0) {
    const int error = errno;
    opened.Reset();
    errno = error;
  }
  return opened;
}

LatencyRequest& LatencyRequest::OfProcess() {
  static LatencyRequest* const request = [] {
    of_process = new LatencyRequest(LatencyRequestFile());
    pthread_atfork(&BeforeFork, &AfterForkInParent, &AfterForkInChild);
    return of_process;
  }();
  return *request;
}

LatencyRequest::LatencyRequest(std::string file, std::chrono::milliseconds linger)
    : file_name_(std::move(file)), linger_(linger), usable_(!file_name_.empty()) {}

bool LatencyRequest::is_open() const {
  MutexLock lock(mutex_);
  return file_.valid();
}

// After a failure for good, the counts mean nothing, and nothing reads them.
void LatencyRequest::Begin() {
  if (!usable_.load(std::memory_order_relaxed)) return;
  MutexLock lock(mutex_);
  ++busy_holds_;
  if (!is_begun_) Open();
}

void LatencyRequest::End(const LatencyHold* hold, EventLoop* loop) {
  if (!usable_.load(std::memory_order_relaxed)) return;
  MutexLock lock(mutex_);
  if (--busy_holds_ > 0) return;
  idle_since_ = Clock::now();
  if (timer_of_ == nullptr) Arm(hold, loop);
}

void LatencyRequest::Leave(const LatencyHold* hold, bool was_busy) {
  if (!usable_.load(std::memory_order_relaxed)) return;
  MutexLock lock(mutex_);
  if (was_busy) --busy_holds_;
  if (timer_of_ == hold) timer_of_ = nullptr;
  if (busy_holds_ == 0 && timer_of_ == nullptr) Close();
}

void LatencyRequest::Open() {
  is_begun_ = true;
  file_ = OpenLatencyRequest(file_name_);
  if (!file_.valid() && !IsShortage(errno)) usable_.store(false, std::memory_order_relaxed);
}

void LatencyRequest::Close() {
  file_.Reset();
  is_begun_ = false;
}

void LatencyRequest::Arm(const LatencyHold* hold, EventLoop* loop) {
  timer_of_ = hold;
  loop->PostAt(idle_since_ + linger_,
               [this, timer = ++timer_, hold, loop] { OnTimer(timer, hold, loop); });
}

void LatencyRequest::OnTimer(uint64_t timer, const LatencyHold* hold, EventLoop* loop) {
  MutexLock lock(mutex_);
  if (timer != timer_ || timer_of_ != hold) return;  // of a hold that is gone
  timer_of_ = nullptr;
  if (busy_holds_ > 0) return;  // their end arms the next one
  if (Clock::now() < idle_since_ + linger_) return Arm(hold, loop);
  Close();
}

void LatencyRequest::BeforeFork() GANGWAY_NO_ANALYSIS { of_process->mutex_.Lock(); }

void LatencyRequest::AfterForkInParent() GANGWAY_NO_ANALYSIS { of_process->mutex_.Unlock(); }

// The parent's holds are orphans here; those of sessions that the child opens begin anew.
void LatencyRequest::AfterForkInChild() GANGWAY_NO_ANALYSIS {
  of_process->Close();
  of_process->busy_holds_ = 0;
  of_process->timer_of_ = nullptr;
  of_process->mutex_.Unlock();
}

LatencyHold::~LatencyHold() {
  if (loop_ != nullptr && !IsOrphan()) request_->Leave(this, is_busy_);
}

void LatencyHold::Use(EventLoop* loop) {
  if (World::installed() == nullptr) loop_ = loop;
}

void LatencyHold::Change(bool busy) {
  if (IsOrphan()) return;
  is_busy_ = busy;
  busy ? request_->Begin() : request_->End(this, loop_);
}

}  // namespace gangway
