// SPDX-License-Identifier: Apache-2.0
#include "harness/judge_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <thread>

#include "harness/impostors.h"
#include "harness/interrupt.h"
#include "reference/exact.h"

namespace smla {
namespace {

using InputsPtr = std::shared_ptr<const Inputs>;
constexpr int64_t kHeldRows_bytes = 48 << 20;  // outputs that wait for the oracle, over all kernels of the case
constexpr int64_t kBlockRows = 512;            // rows of one oracle block: about 12 KiB each

double ms_since(std::chrono::steady_clock::time_point then) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - then).count();
}

/// One run of one kernel, and what is made of it.
struct Take {
  static constexpr size_t kBase = ~size_t{0};
  size_t check = kBase;  // index into checks()
  CheckRun run;
  bool bits_promised = false;  // must equal the base run bit by bit
  bool rows_needed = true;     // the oracle judges it
  InputsPtr in;                // what the oracle is asked
  RunReply reply;
  std::unique_ptr<RowComparer> comparer, stale;  // stale: the base run's rows against the changed question (sensitivity)

  bool base() const { return check == kBase; }
  std::string name() const { return base() ? "" : fmt::format("{} ({}): ", checks()[check].name, to_word(run.variant)); }
};

/// A kernel that is asked this case.
struct Subject {
  const Candidate* candidate = nullptr;
  Contract contract, judged_by;
  std::vector<Take> takes;  // takes[0] is the base run
  Evidence evidence;
  std::unique_ptr<ImpostorWatch> impostors;
  std::map<size_t, CheckOutcome> outcomes;

  bool running() const { return evidence.ended == Status::pass && !takes.empty(); }
  void end(Status status, const std::string& detail) {
    evidence.ended = status;
    evidence.ended_detail = detail;
  }
  void fault(size_t check, bool out_ok, bool lse_ok, const std::string& detail) {
    CheckOutcome& outcome = outcomes[check];
    outcome.out_ok &= out_ok;
    outcome.lse_ok &= lse_ok;
    if (outcome.detail.empty()) outcome.detail = detail;
  }
};

bool promised(SameBits bits, const Contract& contract) {
  switch (bits) {
    case SameBits::never:
      return false;
    case SameBits::if_deterministic:
      return contract.deterministic;
    case SameBits::if_scale_exact:
      return contract.deterministic && contract.scale_exact;
    case SameBits::if_batch_invariant:
      return contract.deterministic && contract.batch_invariant;
  }
  return false;
}

std::string differs(bool out, bool lse) { return out && lse ? "out and lse differ" : out ? "out differs" : "lse differs"; }

class CaseJudge {
 public:
  CaseJudge(const PlannedCase& planned, const std::vector<Candidate>& kernels, const JudgeOptions& options)
      : planned_(planned), kernels_(kernels), options_(options), threads_(options.threads) {
    if (threads_ == 0) threads_ = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  }

  CaseResult judge() {
    base_ = inputs({});
    tokens_ = judged_tokens(*base_, options_.oracle_rows);
    for (const Candidate& candidate : kernels_) {
      subjects_.emplace_back();
      ask(subjects_.back(), candidate);
      if (interrupted()) return {};
    }
    size_t held = 0;
    for (const Subject& subject : subjects_)
      for (const Take& take : subject.takes) held += take.rows_needed;
    const int64_t token_bytes = static_cast<int64_t>(base_->c.h_q) * (base_->c.d_v * 2 + 4) * static_cast<int64_t>(std::max<size_t>(held, 1));
    const size_t chunk = static_cast<size_t>(std::max<int64_t>(1, kHeldRows_bytes / token_bytes));
    for (size_t from = 0; from < tokens_.size(); from += chunk) {
      const std::span<const int64_t> tokens = std::span(tokens_).subspan(from, std::min(chunk, tokens_.size() - from));
      for (Subject& subject : subjects_)
        for (Take& take : subject.takes)
          if (subject.running() && (from == 0 || take.rows_needed)) {
            launch(subject, take, tokens, from == 0);
            if (interrupted()) return {};
          }
      judge_chunk(tokens);
    }
    return finish();
  }

 private:
  InputsPtr inputs(const Variant& variant) {
    InputsPtr& in = inputs_[to_word(variant)];
    if (!in) {
      const auto start = std::chrono::steady_clock::now();
      in = std::make_shared<const Inputs>(make_inputs(planned_.c(), variant));
      spent_.generate_ms += ms_since(start);
    }
    return in;
  }

  /// Asks the kernel for its contract, and lists the runs it is to make.
  void ask(Subject& subject, const Candidate& candidate) {
    subject.candidate = &candidate;
    if (candidate.info.device == "cpu" && std::count(planned_.suite_case.tags.begin(), planned_.suite_case.tags.end(), "gpu") > 0)
      return subject.end(Status::skipped, "the suite tags this case gpu: too much work for a CPU kernel");
    const RunReply reply = candidate.worker->supports(planned_.c(), candidate.info.name);
    subject.contract = reply.contract;
    subject.evidence.has_lse = reply.contract.lse_dtype != LseType::none;
    if (reply.status != Status::pass) return subject.end(reply.status, reply.detail);
    const std::string excluded = contract_excludes(reply.contract, *base_);
    if (!excluded.empty()) return subject.end(Status::unsupported, excluded);
    subject.judged_by = options_.accept == Accept::declared ? subject.contract : with_reference_precision(subject.contract);

    subject.takes.emplace_back();
    subject.takes.back().in = base_;
    for (size_t check : options_.checks) {
      subject.outcomes[check].check = check;
      for (CheckRun& run : checks()[check].runs(*base_, subject.contract)) {
        const InputsPtr in = inputs(run.variant);
        if (!contract_excludes(subject.contract, *in).empty()) continue;
        Take take;
        take.check = check;
        take.bits_promised = promised(run.same_bits, subject.contract);
        take.rows_needed = !take.bits_promised || run.variant.permute_batch;
        take.in = run.own_oracle ? in : base_;
        take.run = std::move(run);
        subject.takes.push_back(std::move(take));
      }
    }
  }

  bool chosen(std::string_view name) const {
    return std::any_of(options_.checks.begin(), options_.checks.end(), [&](size_t check) { return checks()[check].name == name; });
  }
  size_t check_index(std::string_view name) const {
    return static_cast<size_t>(std::find_if(checks().begin(), checks().end(), [&](const Check& check) { return check.name == name; }) -
                               checks().begin());
  }

  void launch(Subject& subject, Take& take, std::span<const int64_t> tokens, bool first) {
    RunRequest request;
    request.c = planned_.c();
    request.variant = take.run.variant;
    request.kernel = subject.candidate->info.name;
    request.fill = take.run.fill;
    request.threads = options_.threads;
    request.deadline_s = options_.case_timeout_s;
    if (take.base() && first && chosen("determinism")) {
      request.launches = options_.determinism;
      request.alternate = options_.determinism > 1;
    }
    if (take.rows_needed) request.tokens = sent(take, tokens);
    RunReply reply = subject.candidate->worker->run(request);
    spent_.generate_ms += reply.generate_ms;
    spent_.kernel_ms +=
        reply.prepare_ms + reply.first_launch_ms + reply.kernel_ms * (request.alternate ? 2 * request.launches - 2 : request.launches - 1);
    if (reply.status == Status::unsupported && !take.base()) {  // it may decline a variant
      take.rows_needed = false;
      return;
    }
    if (reply.status != Status::pass) return subject.end(reply.status, take.name() + reply.detail);
    if (first) facts(subject, take, reply);
    take.reply = std::move(reply);
    const bool split = take.reply.splits_used != 1 && (take.run.variant.num_splits >= 0 ? take.run.variant.num_splits : planned_.c().num_splits) != 1;
    if (take.rows_needed && !take.comparer) {
      take.comparer = std::make_unique<RowComparer>(*take.in, subject.judged_by, split);
      if (!take.run.variant.perturb.empty()) take.stale = std::make_unique<RowComparer>(*take.in, subject.judged_by, split);
      if (take.base()) subject.impostors = std::make_unique<ImpostorWatch>(*base_, subject.judged_by, split);
    }
    if (take.bits_promised && take.rows_needed && (take.reply.out != subject.takes[0].reply.out || take.reply.lse != subject.takes[0].reply.lse))
      subject.fault(take.check, take.reply.out == subject.takes[0].reply.out, take.reply.lse == subject.takes[0].reply.lse,
                    fmt::format("{} changed bits of the answer", to_word(take.run.variant)));
  }

  /// The tokens to ask for so that rows come back in the order of the oracle's.
  std::vector<int64_t> sent(const Take& take, std::span<const int64_t> tokens) const {
    std::vector<int64_t> out(tokens.begin(), tokens.end());
    if (take.run.variant.permute_batch)
      for (int64_t& t : out) t = (base_->c.b - 1 - t / base_->c.s_q) * base_->c.s_q + t % base_->c.s_q;
    return out;
  }

  /// What every run tells, whatever it was for, and whether promised bits were kept.
  void facts(Subject& subject, const Take& take, const RunReply& reply) {
    const auto fact = [&](std::string_view name, bool ok, bool out_ok, bool lse_ok, const std::string& detail) {
      if (!chosen(name)) return;
      const size_t check = check_index(name);
      subject.outcomes[check].ran = true;
      if (!ok) subject.fault(check, out_ok, lse_ok, take.name() + detail);
    };
    fact("guards", reply.guards_ok, false, false, reply.guards_detail);
    fact("inputs", reply.inputs_ok, false, false, reply.guards_detail);
    fact("written", reply.written_ok, false, false, reply.guards_detail);
    const auto same = [](const std::vector<uint64_t>& hashes, uint64_t hash) {
      return std::all_of(hashes.begin(), hashes.end(), [&](uint64_t other) { return other == hash; });
    };
    if (take.base()) {
      if (subject.contract.deterministic && reply.out_hash.size() > 1) {
        const bool out_ok = same(reply.out_hash, reply.out_hash[0]), lse_ok = reply.lse_hash.empty() || same(reply.lse_hash, reply.lse_hash[0]);
        fact("determinism", out_ok && lse_ok, out_ok, lse_ok,
             fmt::format("{} between {} launches", differs(!out_ok, !lse_ok), reply.out_hash.size()));
      }
      return;
    }
    subject.outcomes[take.check].ran = true;
    if (!take.bits_promised || take.rows_needed) return;
    const RunReply& base = subject.takes[0].reply;
    const bool out_ok = same(reply.out_hash, base.out_hash[0]), lse_ok = base.lse_hash.empty() || same(reply.lse_hash, base.lse_hash[0]);
    if (!out_ok || !lse_ok)
      subject.fault(take.check, out_ok, lse_ok, fmt::format("{} though only {} changed", differs(!out_ok, !lse_ok), to_word(take.run.variant)));
  }

  void judge_chunk(std::span<const int64_t> tokens) {
    const size_t block_tokens = static_cast<size_t>(std::max<int64_t>(threads_, kBlockRows / base_->c.h_q));
    for (size_t from = 0; from < tokens.size(); from += block_tokens) {
      const std::span<const int64_t> block = tokens.subspan(from, std::min(block_tokens, tokens.size() - from));
      std::map<const Inputs*, OracleBlock> answers;  // once for all kernels
      for (Subject& subject : subjects_) {
        if (!subject.running()) continue;
        for (Take& take : subject.takes) {
          if (!take.rows_needed) continue;
          const OracleBlock* answer = ask_oracle(answers, *take.in, block);
          take.comparer->add(answer, block, rows(take.reply, from, block.size()));
          if (take.stale) take.stale->add(answer, block, rows(subject.takes[0].reply, from, block.size()));
          if (take.base()) subject.impostors->add(answer, block);
        }
      }
    }
    for (Subject& subject : subjects_)
      for (Take& take : subject.takes) {
        take.reply.out = {};
        take.reply.lse = {};
      }
  }

  CandidateRows rows(const RunReply& reply, size_t from, size_t count) const {
    const size_t h_q = static_cast<size_t>(base_->c.h_q), d_v = static_cast<size_t>(base_->c.d_v);
    CandidateRows out{std::span(reply.out).subspan(from * h_q * d_v, count * h_q * d_v), {}};
    if (!reply.lse.empty()) out.lse = std::span(reply.lse).subspan(from * h_q, count * h_q);
    return out;
  }

  const OracleBlock* ask_oracle(std::map<const Inputs*, OracleBlock>& answers, const Inputs& in, std::span<const int64_t> tokens) {
    if (needs_no_oracle(in.c.values)) return nullptr;
    const auto found = answers.find(&in);
    if (found != answers.end()) return &found->second;
    OracleOptions options;
    options.threads = threads_;
    for (const Subject& subject : subjects_)
      if (subject.running()) {
        options.score_errors.push_back(score_error(subject.judged_by, in.c));
        options.score_errors.push_back(score_error(with_reference_precision(subject.judged_by), in.c));
      }
    const OracleBlock& block = answers[&in] = oracle(in, tokens, options);
    spent_.oracle_ms += block.compute_ms;
    spent_.generate_ms += block.generate_ms;
    return &block;
  }

  CaseResult finish() {
    CaseResult result;
    result.valid_keys = base_->valid_keys;
    result.entries = base_->tokens() * base_->c.topk;
    result.spent = spent_;
    std::optional<double> coverage;
    if (base_->c.values == Values::needle) coverage = needle_coverage(*base_);
    for (Subject& subject : subjects_) {
      for (Take& take : subject.takes)
        if (take.comparer && !take.base()) conclude(subject, take);
      PairResult pair;
      pair.kernel = subject.candidate->info.name;
      pair.contract = subject.contract;
      if (subject.running()) {
        subject.evidence.figures = subject.takes[0].comparer->figures();
        subject.evidence.mistrusted = subject.impostors->accepted();
        pair.base = std::move(subject.takes[0].reply);
        pair.oracle_rows = subject.evidence.figures.rows;
        pair.needle_coverage = coverage;
      }
      for (const auto& [check, outcome] : subject.outcomes) subject.evidence.checks.push_back(outcome);
      pair.oracle_ms = spent_.oracle_ms;
      pair.evidence = std::move(subject.evidence);
      pair.decision = decide(pair.evidence);
      pair.red = is_red(pair.status(), pair.kernel, planned_.suite_case.expect, &pair.expected);
      pair.repro = fmt::format("smla check --kernel {} --case {}{}", pair.kernel, shell_quote(to_line(planned_.c())), options_.repro_flags);
      result.pairs.push_back(std::move(pair));
    }
    return result;
  }

  /// A check's run that the oracle judged.
  void conclude(Subject& subject, Take& take) {
    Evidence evidence;
    evidence.has_lse = subject.evidence.has_lse;
    if (take.stale) {
      evidence.figures = take.stale->figures();
      if (decide(evidence).status() == Status::pass) return;  // the change shows nowhere: this case cannot tell
    }
    evidence.figures = take.comparer->figures();
    const Decision decision = decide(evidence);
    if (decision.status() != Status::pass)
      subject.fault(take.check, decision.out == Status::pass, decision.lse == Status::pass, take.name() + decision.detail());
  }

  const PlannedCase& planned_;
  const std::vector<Candidate>& kernels_;
  const JudgeOptions& options_;
  int threads_;
  std::map<std::string, InputsPtr> inputs_;  // by variant
  InputsPtr base_;
  std::vector<int64_t> tokens_;
  std::vector<Subject> subjects_;
  TimeSpent spent_;
};

}  // namespace

TimeSpent& TimeSpent::operator+=(const TimeSpent& other) {
  oracle_ms += other.oracle_ms;
  generate_ms += other.generate_ms;
  kernel_ms += other.kernel_ms;
  return *this;
}

CaseResult judge_case(const PlannedCase& planned, const std::vector<Candidate>& kernels, const JudgeOptions& options) {
  return CaseJudge(planned, kernels, options).judge();
}

std::vector<int64_t> judged_tokens(const Inputs& in, int64_t rows) {
  const int64_t total = in.tokens(), wanted = rows == 0 ? total : std::min(total, (rows + in.c.h_q - 1) / in.c.h_q);
  std::set<int64_t> tokens(in.special_rows.begin(), in.special_rows.end());
  if (wanted == total) tokens.clear();
  for (int64_t i = 0; i < wanted; ++i) tokens.insert(wanted == total ? i : i * (total - 1) / std::max<int64_t>(1, wanted - 1));
  return {tokens.begin(), tokens.end()};
}

std::string shell_quote(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace smla
