// SPDX-License-Identifier: Apache-2.0
#include "harness/progress.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>

#include "reports/text.h"

namespace smla {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point then) { return std::chrono::duration<double>(Clock::now() - then).count(); }

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20 ? size.ws_col : 80;
}

}  // namespace

void tell(const std::string& said) {
  constexpr size_t kBegin = 600, kEnd = 300;  // of a line that quotes something endless
  std::string text = said;
  if (text.size() > kBegin + kEnd) text.replace(kBegin, text.size() - kBegin - kEnd, " ... ");
  std::fputs(fmt::format("smla: {}\n", clean_text(text)).c_str(), stderr);  // never fmt::print: it throws where stderr cannot be written
}

std::string clock_text(double seconds) {
  const int64_t s = static_cast<int64_t>(std::max(0.0, seconds) + 0.5);
  return s >= 3600 ? fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60) : fmt::format("{}:{:02}", s / 60, s % 60);
}

Progress::Progress(ProgressKind kind, int64_t planned, std::string what)
    : planned_(planned), what_(std::move(what)), start_(Clock::now()), last_(start_) {
  bar_ = kind == ProgressKind::automatic && isatty(STDERR_FILENO);
  lines_ = kind != ProgressKind::none && !bar_;
}

Progress::~Progress() { clear(); }

void Progress::clear() {
  if (drawn_) std::fputs("\r\033[K", stderr);
  drawn_ = false;
  std::fflush(stderr);
}

void Progress::advance(int64_t done, const std::string& now) {
  done_ += done;
  now_ = now;
  constexpr double kBarEvery_s = 0.1, kLineEvery_s = 10;
  const bool due = seconds_since(last_) >= (bar_ ? kBarEvery_s : kLineEvery_s);
  if ((!bar_ && !lines_) || (!due && (done_ < planned_ || lines_))) return;
  last_ = Clock::now();
  draw();
}

void Progress::draw() {
  const double elapsed_s = seconds_since(start_), share = planned_ == 0 ? 1 : static_cast<double>(done_) / static_cast<double>(planned_);
  const std::string left = done_ == 0 ? "?" : clock_text(elapsed_s / share - elapsed_s);
  const std::string count = fmt::format("{} {}/{}  {} elapsed, {} left", what_, done_, planned_, clock_text(elapsed_s), left);
  if (lines_) {
    std::fputs((count + '\n').c_str(), stderr);
    return;
  }
  const int width = 20, full = static_cast<int>(share * width);
  std::string line = fmt::format("[{:=<{}}{:{}}] {}  {}", "", full, "", width - full, count, now_);
  line.resize(std::min(line.size(), static_cast<size_t>(terminal_columns() - 1)));
  std::fputs(("\r\033[K" + line).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace smla
