// SPDX-License-Identifier: Apache-2.0
#include "harness/judge_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <thread>
#include <utility>

#include "harness/impostors.h"
#include "harness/interrupt.h"
#include "harness/relations.h"
#include "harness/schedule.h"
#include "harness/worker/host_device.h"
#include "reference/exact.h"

namespace smla {
namespace {

using InputsPtr = std::shared_ptr<const Inputs>;
constexpr int64_t kBlockRows = 512;  // rows of one oracle block: about 12 KiB each

/// One run of one kernel, and what is made of it.
struct Take {
  static constexpr size_t kBase = ~size_t{0};
  size_t check = kBase;  // index into checks()
  CheckRun run;
  bool bits_promised = false;  // must equal the base run bit by bit
  bool rows_needed = true;     // the oracle, or a relation, looks at its rows
  bool judged = false;         // the rows that it holds
  InputsPtr in;                // what the oracle is asked
  const Candidate* candidate = nullptr;
  Contract contract;  // by which the rows are judged
  bool split = true;
  RunReply reply;
  std::unique_ptr<RowComparer> comparer, stale;  // stale: the base run's rows against the changed question (sensitivity)

  bool base() const { return check == kBase; }
  /// For the first chunk of tokens alone.
  bool once() const { return !rows_needed || run.first_launch; }
  /// Its rows are held against the base run's.
  bool looks_at_base() const { return rows_needed && (bits_promised || !run.variant.perturb.empty()); }
  std::string name() const { return base() ? "" : fmt::format("{} ({}): ", checks()[check].name, to_string(run)); }
  /// What tells it from other runs of its check.
  std::string variant() const { return to_string(run) == checks()[check].name ? "" : to_string(run) + ": "; }
};

/// A kernel that is asked this case.
struct Subject {
  const Candidate* candidate = nullptr;
  Contract contract, judged_by;
  std::vector<Take> takes;  // takes[0] is the base run
  Evidence evidence;
  std::unique_ptr<ImpostorWatch> impostors;
  std::map<size_t, CheckOutcome> outcomes;
  std::map<size_t, RelationWatch> relations;  // by check
  size_t to_come = 0;                         // takes whose last launch has not come back yet
  bool asked = false, left_out = false;
  bool is_wrong = false;           // a row of the base run was
  std::unique_ptr<Take> refilled;  // the base run once more, where unselected memory holds numbers; of refilled_tokens
  std::span<const int64_t> refilled_tokens;

  bool running() const { return evidence.ended == Status::pass && !takes.empty(); }
  void end(Status status, const std::string& detail) {
    evidence.ended = status;
    evidence.ended_detail = detail;
  }
  void fault(size_t check, bool out_ok, bool lse_ok, const std::string& detail) {
    CheckOutcome& outcome = outcomes[check];
    outcome.ran = true;
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

  /// Interrupted, it leaves out the kernels that were not through. False: all of them.
  bool run() {
    run_until_interrupted();
    if (!interrupted()) return true;
    bool any = false;
    for (Subject& subject : subjects_) {
      subject.left_out = !subject.asked || subject.to_come > 0;
      if (subject.left_out) subject.takes.clear();
      any |= !subject.left_out;
    }
    return any;
  }

  /// What is left to do then.
  CaseResult judge() {
    judge_chunk();
    return finish();
  }

 private:
  void run_until_interrupted() {
    subjects_.resize(kernels_.size());
    if (const std::string why = too_large(planned_.c()); !why.empty()) return skip_all(why);
    base_ = inputs({});
    tokens_ = judged_tokens(*base_, options_.oracle_rows);
    for (size_t i = 0; i < kernels_.size(); ++i) {
      ask(subjects_[i], kernels_[i]);
      if (interrupted()) return;
      subjects_[i].asked = true;
      subjects_[i].to_come = subjects_[i].takes.size();
    }
    inputs_.clear();
    const auto [order, plan] = scheduled();
    const double judging_bytes =
        needs_no_oracle(base_->c.values) ? 0 : oracle_bytes(*base_, std::min(block_tokens(), std::ssize(tokens_)), oracle_options(*base_));
    if (const std::string why = too_large(static_cast<double>(plan.held_bytes) + judging_bytes, "the oracle and the answers that it judges");
        !why.empty())
      return skip_all(why);
    for (size_t from = 0; from < tokens_.size(); from += plan.chunk) {
      judge_chunk();
      chunk_ = std::span(tokens_).subspan(from, std::min(plan.chunk, tokens_.size() - from));
      const Subject* before = nullptr;
      for (const auto& [subject, take] : order)
        if (subject->running() && (from == 0 || !take->once())) {
          if (plan.one_after_another && subject != std::exchange(before, subject)) judge_chunk();
          const bool answered = launch(*subject, *take, chunk_, from == 0);
          if (interrupted() && !answered) return;  // the worker was killed: that says nothing of the kernel
          if (!subject->running()) subject->to_come = 0;
          else if (from + plan.chunk >= tokens_.size() || take->once()) --subject->to_come;
          if (!plan.waits) judge_chunk(plan.keeps_base);
          if (interrupted()) return;
        }
    }
  }

  /// This machine cannot hold what it takes to ask those that have not ended.
  void skip_all(const std::string& why) {
    for (size_t i = 0; i < subjects_.size(); ++i) {
      Subject& subject = subjects_[i];
      if (subject.asked && !subject.running()) continue;
      subject.candidate = &kernels_[i];
      subject.asked = true;
      subject.to_come = 0;
      subject.end(Status::skipped, why);
    }
  }

  /// Null where the case has no such variant (q * 8 would leave fp16's range).
  InputsPtr inputs(const Variant& variant) {
    const auto [found, fresh] = inputs_.try_emplace(to_word(variant));
    if (!fresh) return found->second;
    const Doing note(options_.timeline, Activity::generate);
    try {
      found->second = std::make_shared<const Inputs>(make_inputs(planned_.c(), variant));
    } catch (const UsageError&) {
      if (variant == Variant{}) throw;
    }
    return found->second;
  }

  /// Asks the kernel for its contract, and lists the runs it is to make.
  void ask(Subject& subject, const Candidate& candidate) {
    subject.candidate = &candidate;
    if (candidate.info.device == "cpu" && planned_.tagged("gpu"))
      return subject.end(Status::skipped, "the suite tags this case gpu: too much work for a CPU kernel");
    const RunReply reply = candidate.worker->supports(planned_.c(), candidate.info.name);
    note(reply);
    subject.contract = reply.contract;
    subject.evidence.has_lse = reply.contract.lse_dtype != LseType::none;
    if (reply.status != Status::pass) return subject.end(reply.status, reply.detail);
    const std::string excluded = contract_excludes(reply.contract, *base_);
    if (!excluded.empty()) return subject.end(Status::unsupported, excluded);
    subject.judged_by = options_.accept == Accept::declared ? subject.contract : with_reference_precision(subject.contract);

    Take base;
    base.in = base_;
    base.candidate = &candidate;
    base.contract = subject.judged_by;
    subject.takes.push_back(std::move(base));
    for (size_t check : options_.checks) {
      subject.outcomes[check].check = check;
      if (checks()[check].needs_streams && candidate.info.device == "cpu") continue;
      for (CheckRun& run : checks()[check].runs(*base_, subject.contract)) {
        if (run.first_launch && !looks_at_first_launch(candidate)) continue;
        Take take;
        take.check = check;
        take.candidate = run.kernel.empty() ? &candidate : twin(run.kernel == kDenseOfDevice ? dense_kernel(candidate.info.device) : run.kernel);
        if (take.candidate == nullptr || (!run.kernel.empty() && take.candidate->info.name == candidate.info.name)) continue;
        if (const std::string why = inputs_.contains(to_word(run.variant)) ? "" : too_large(planned_.c()); !why.empty())
          return subject.end(Status::skipped, fmt::format("{}: {}", checks()[check].name, why));
        const InputsPtr in = inputs(run.variant);
        if (!in || !contract_excludes(subject.contract, *in).empty()) continue;
        take.bits_promised = promised(run.same_bits, subject.contract);
        take.rows_needed = !take.bits_promised || run.variant.permute_batch;
        take.in = run.own_oracle ? in : base_;
        take.contract = subject.judged_by;
        take.run = std::move(run);
        subject.takes.push_back(std::move(take));
      }
    }
  }

  void note(const RunReply& reply) const {
    if (options_.timeline) options_.timeline->add(reply.spans);
  }

  /// Once a run; not where the base run is one itself, for want of another input before it.
  bool looks_at_first_launch(const Candidate& candidate) const {
    return options_.determinism > 1 && options_.first_launches && !options_.first_launches->contains(candidate.info.name);
  }

  const Candidate* twin(const std::string& kernel) const {
    for (const Candidate& candidate : options_.twins)
      if (candidate.info.name == kernel) return &candidate;
    return nullptr;
  }

  /// The runs of all kernels, and when each of them comes.
  std::pair<std::vector<std::pair<Subject*, Take*>>, Schedule> scheduled() {
    std::vector<std::pair<Subject*, Take*>> listed, order;
    std::vector<ScheduledRun> runs;
    for (Subject& subject : subjects_)
      for (Take& take : subject.takes) {
        listed.emplace_back(&subject, &take);
        runs.push_back(
            {static_cast<size_t>(&subject - subjects_.data()), take.base() ? "" : to_string(take.run), take.rows_needed, take.looks_at_base()});
      }
    Schedule plan = schedule(runs, *base_, std::ssize(tokens_));
    for (size_t run : plan.order) order.push_back(listed[run]);
    return {std::move(order), std::move(plan)};
  }

  bool chosen(std::string_view name) const {
    return std::any_of(options_.checks.begin(), options_.checks.end(), [&](size_t check) { return checks()[check].name == name; });
  }

  /// False: there is no answer, because the kernel declined or failed.
  bool launch(Subject& subject, Take& take, std::span<const int64_t> tokens, bool first) {
    RunRequest request;
    request.c = planned_.c();
    request.variant = take.run.variant;
    request.kernel = take.candidate->info.name;
    request.fill = take.run.fill;
    request.guard = take.run.guard;
    request.calls = take.run.calls;
    request.launches = take.run.launches;
    request.other = take.run.other;
    request.threads = options_.threads;
    request.deadline_s = options_.case_timeout_s;
    if (take.base() && first && chosen("determinism")) {
      request.launches = options_.determinism;
      request.alternate = options_.determinism > 1;
      if (request.alternate) request.other.num_splits = planned_.c().num_splits == 1 ? 2 : 1;
    }
    if (take.rows_needed) request.tokens = sent(take, tokens);
    if (take.run.first_launch) {
      if (!options_.first_launches->insert(request.kernel)) {  // in a case that runs beside this one
        take.rows_needed = false;
        return false;
      }
      take.candidate->worker->renew_for(request.kernel);
    }
    RunReply reply = take.candidate->worker->run(request);
    note(reply);
    const bool is_twin = take.candidate != subject.candidate;
    if (reply.status != Status::pass && (is_twin || (reply.status == Status::unsupported && !take.base()))) {  // it may decline a variant
      take.rows_needed = false;
      return false;
    }
    if (reply.status != Status::pass) return subject.end(reply.status, take.name() + reply.detail), false;
    if (is_twin) take.contract = reply.contract;
    if (first && !is_twin) facts(subject, take, reply);
    // A first launch is told where it is wrong: which of a run's cases had it is no part of the report.
    if (!take.base() && !take.run.first_launch) subject.outcomes[take.check].ran = true;
    if (!reply.misuse.empty()) {  // what came of it says nothing more
      subject.fault(take.check, false, false, reply.misuse);
      take.rows_needed = false;
      return true;
    }
    take.reply = std::move(reply);
    take.judged = false;
    take.split = take.reply.splits_used != 1 && (take.run.variant.num_splits >= 0 ? take.run.variant.num_splits : planned_.c().num_splits) != 1;
    if (take.rows_needed && !take.comparer && !is_twin) {
      const auto hook = [&] {
        return options_.row_hook ? options_.row_hook(static_cast<size_t>(&subject - subjects_.data()), take.base()) : nullptr;
      };
      take.comparer = std::make_unique<RowComparer>(*take.in, take.contract, take.split, hook());
      if (!take.run.variant.perturb.empty()) take.stale = std::make_unique<RowComparer>(*take.in, take.contract, take.split, hook());
      if (take.base()) subject.impostors = std::make_unique<ImpostorWatch>(*base_, take.contract, take.split);
    }
    if (take.bits_promised) same_bits(subject, take, first);
    if (take.base() && options_.causes && !subject.refilled && holds_nan(take)) refill(subject, request, tokens);
    return true;
  }

  static bool holds_nan(const Take& take) {
    const FloatType type = take.in->c.q_dtype;
    const uint16_t inf = type == FloatType::bf16 ? 0x7f80 : 0x7c00;
    const auto& out = take.reply.out;
    return std::any_of(out.begin(), out.end(), [&](uint16_t bits) { return (bits & 0x7fff) > inf; });
  }
  /// For causes alone: whatever becomes of it, no verdict rests on it.
  void refill(Subject& subject, RunRequest request, std::span<const int64_t> tokens) {
    request.variant.poison = Poison::numbers;
    auto take = std::make_unique<Take>();
    take->in = inputs(request.variant);
    take->reply = subject.candidate->worker->run(request);
    note(take->reply);
    if (take->reply.status != Status::pass) return;
    subject.refilled = std::move(take);
    subject.refilled_tokens = tokens;
  }

  /// The tokens to ask for so that rows come back in the order of the oracle's.
  std::vector<int64_t> sent(const Take& take, std::span<const int64_t> tokens) const {
    std::vector<int64_t> out(tokens.begin(), tokens.end());
    if (take.run.variant.permute_batch)
      for (int64_t& t : out) t = (base_->c.b - 1 - t / base_->c.s_q) * base_->c.s_q + t % base_->c.s_q;
    return out;
  }

  /// What every run tells, whatever it was for.
  void facts(Subject& subject, const Take& take, const RunReply& reply) {
    const auto fact = [&](std::string_view name, bool out_ok, bool lse_ok, const std::string& detail) {
      if (!chosen(name)) return;
      const size_t check =
          static_cast<size_t>(std::find_if(checks().begin(), checks().end(), [&](const Check& c) { return c.name == name; }) - checks().begin());
      subject.outcomes[check].ran = true;
      if (!out_ok || !lse_ok) subject.fault(check, out_ok, lse_ok, take.name() + detail);
    };
    fact("guards", reply.guards_ok, reply.guards_ok, reply.guards_detail);
    fact("inputs", reply.inputs_ok, reply.inputs_ok, reply.guards_detail);
    fact("written", reply.written_ok, reply.written_ok, reply.detail);
    if (!subject.contract.deterministic || reply.out_hash.size() < 2) return;
    const auto constant = [](const std::vector<uint64_t>& hashes) {
      return std::adjacent_find(hashes.begin(), hashes.end(), std::not_equal_to<>()) == hashes.end();
    };
    const bool out_ok = constant(reply.out_hash), lse_ok = constant(reply.lse_hash);
    fact("determinism", out_ok, lse_ok, fmt::format("{} between {} launches", differs(!out_ok, !lse_ok), reply.out_hash.size()));
  }

  void same_bits(Subject& subject, const Take& take, bool first) {
    const RunReply &a = subject.takes[0].reply, &b = take.reply;
    bool out_ok = true, lse_ok = true;
    if (take.rows_needed) {  // rows stand elsewhere in this run's tensors, so hashes of the whole differ
      out_ok = a.out == b.out;
      lse_ok = a.lse == b.lse;
    } else if (first) {
      const auto all_are = [](const std::vector<uint64_t>& hashes, uint64_t hash) {
        return std::all_of(hashes.begin(), hashes.end(), [&](uint64_t h) { return h == hash; });
      };
      out_ok = all_are(b.out_hash, a.out_hash.front());
      lse_ok = all_are(b.lse_hash, a.lse_hash.front());
    }
    if (!out_ok || !lse_ok)
      subject.fault(take.check, out_ok, lse_ok, fmt::format("{}{}, where the same bits are declared", take.variant(), differs(!out_ok, !lse_ok)));
  }

  /// Tokens that are judged together: of an oracle block, or all that are there.
  int64_t block_tokens() const {
    return needs_no_oracle(base_->c.values) ? std::ssize(tokens_) : std::max<int64_t>(threads_, kBlockRows / base_->c.h_q);
  }

  /// Judges the rows that came back, and drops them; `keep_bases`: but those of base runs.
  void judge_chunk(bool keep_bases = false) {
    if (chunk_.empty()) return;
    const auto block_tokens = static_cast<size_t>(this->block_tokens());
    for (size_t from = 0; from < chunk_.size(); from += block_tokens) {
      std::map<const Inputs*, OracleBlock> answers;  // once for all kernels
      for (Subject& subject : subjects_)
        if (subject.running()) judge_block(subject, answers, chunk_.subspan(from, std::min(block_tokens, chunk_.size() - from)), from);
    }
    for (Subject& subject : subjects_)
      for (Take& take : subject.takes) {
        take.judged = true;
        if (keep_bases && take.base()) continue;
        std::vector<uint16_t>().swap(take.reply.out);  // its memory, too
        std::vector<float>().swap(take.reply.lse);
      }
  }

  void judge_block(Subject& subject, std::map<const Inputs*, OracleBlock>& answers, std::span<const int64_t> tokens, size_t from) {
    const auto related = [&](const Take& take) {
      return RelatedRows{ask_oracle(answers, *take.in, tokens), *take.in, take.contract, take.split, rows(take.reply, from, tokens.size())};
    };
    Take& base = subject.takes[0];
    for (size_t i = 0; i < subject.takes.size(); ++i) {
      Take& take = subject.takes[i];
      if (!take.rows_needed || take.judged || take.reply.out.empty()) continue;
      const OracleBlock* answer = ask_oracle(answers, *take.in, tokens);
      {
        const Doing note(options_.timeline, Activity::compare);
        if (take.comparer) take.comparer->add(answer, tokens, rows(take.reply, from, tokens.size()), threads_);
        if (take.base() && options_.causes) look_for_causes(subject, answer, tokens, from);
        if (take.stale) take.stale->add(answer, tokens, rows(base.reply, from, tokens.size()), threads_);
      }
      if (take.base()) {
        const Doing note(options_.timeline, Activity::impostors);
        subject.impostors->add(answer, tokens);
      }
      const Doing note(options_.timeline, Activity::relate);
      if (take.base() || is_exact_family(base_->c.values)) continue;
      if (!take.run.own_oracle) subject.relations[take.check].add(related(take), related(base));
      if (take.run.variant.half == 2 && subject.takes[i - 1].run.variant.half == 1)
        subject.relations[take.check].add_halves(related(subject.takes[i - 1]), related(take), related(base));
    }
  }

  /// In the first block in which something is wrong.
  void look_for_causes(Subject& subject, const OracleBlock* answer, std::span<const int64_t> tokens, size_t from) {
    const Take& base = subject.takes[0];
    const RowFigures& f = base.comparer->figures();
    if (subject.is_wrong || (f.out.n_bad_rows + f.lse.n_bad_rows == 0 && f.pooled.ok())) return;
    subject.is_wrong = true;
    const CandidateRows judged = rows(base.reply, from, tokens.size());
    if (subject.refilled && subject.refilled_tokens.data() == chunk_.data()) {
      const Refilled refilled{*subject.refilled->in, rows(subject.refilled->reply, from, tokens.size())};
      subject.evidence.causes = find_causes(*base.in, base.contract, base.split, answer, tokens, judged, &refilled);
      subject.refilled = nullptr;
    } else {
      subject.evidence.causes = find_causes(*base.in, base.contract, base.split, answer, tokens, judged);
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
    const int64_t begin_ns = steady_now_ns();
    OracleBlock& block = answers[&in] = oracle(in, tokens, oracle_options(in));
    const int64_t generated_ns = begin_ns + static_cast<int64_t>(block.generate_ms * 1e6);
    const Span spans[] = {{Activity::generate, begin_ns, generated_ns}, {Activity::oracle, generated_ns, steady_now_ns()}};
    if (options_.timeline) options_.timeline->add(spans);
    oracle_ms_ += block.compute_ms;
    return &block;
  }

  OracleOptions oracle_options(const Inputs& in) const {
    OracleOptions options;
    options.threads = threads_;
    for (const Subject& subject : subjects_)
      for (const Take& take : subject.takes)
        for (const Contract& contract : {take.contract, with_reference_precision(take.contract)}) {
          const ScoreError error = score_error(contract, in.c);
          if (std::find(options.score_errors.begin(), options.score_errors.end(), error) == options.score_errors.end())
            options.score_errors.push_back(error);
        }
    return options;
  }

  CaseResult finish() {
    CaseResult result;
    if (base_) result.valid_keys = base_->valid_keys;
    std::optional<NeedleCoverage> coverage;
    if (base_ && base_->c.values == Values::needle) coverage = needle_coverage(*base_);
    for (Subject& subject : subjects_) {
      if (subject.running()) conclude(subject);
      PairResult pair;
      pair.kernel = kernels_[result.pairs.size()].info.name;
      pair.left_out = subject.left_out;
      if (pair.left_out) {
        result.pairs.push_back(std::move(pair));
        continue;
      }
      pair.contract = subject.contract;
      pair.oracle_ms = oracle_ms_;
      pair.needle_coverage = coverage;
      if (subject.running()) pair.base = std::move(subject.takes[0].reply);
      pair.evidence = std::move(subject.evidence);
      pair.decision = decide(pair.evidence);
      pair.red = is_red(pair.status(), pair.kernel, planned_.suite_case.expect, &pair.expected);
      pair.repro = options_.rerun.line("check", pair.kernel, planned_.c());
      result.pairs.push_back(std::move(pair));
    }
    return result;
  }

  /// Figures of the base run, and what the oracle and the relations say of the checks' runs.
  void conclude(Subject& subject) {
    subject.evidence.figures = subject.takes[0].comparer->figures();
    subject.evidence.mistrusted = subject.impostors->accepted();
    subject.evidence.too_loose = subject.impostors->accepted_as_declared();
    const RowFigures& base = subject.evidence.figures;  // what is wrong there is told there, and not again for each check
    const Decision of_base = decide(subject.evidence);
    const bool out_is_wrong = of_base.out == Status::fail, lse_is_wrong = of_base.lse == Status::fail;
    for (const Take& take : subject.takes) {
      if (take.base() || !take.comparer || !take.rows_needed) continue;
      Evidence evidence;
      evidence.has_lse = subject.evidence.has_lse;
      if (take.stale) {
        evidence.figures = take.stale->figures();
        if (decide(evidence).status() == Status::pass) continue;  // the change shows nowhere: this case cannot tell
      }
      const RowFigures& f = evidence.figures = take.comparer->figures();
      const Decision decision = decide(evidence);
      if (decision.status() == Status::pass) continue;
      const bool as_base = f.out.n_bad_rows == base.out.n_bad_rows && f.lse.n_bad_rows == base.lse.n_bad_rows;
      subject.fault(
          take.check, decision.out == Status::pass, decision.lse == Status::pass,
          as_base && (out_is_wrong || lse_is_wrong) ? "" : take.variant() + (out_is_wrong || lse_is_wrong ? wrong_rows(f) : decision.detail()));
    }
    for (const auto& [check, relation] : subject.relations)
      if (!relation.fault().empty()) {
        const bool is_new = (!relation.out_ok() && !out_is_wrong) || (!relation.lse_ok() && !lse_is_wrong);
        subject.fault(check, relation.out_ok(), relation.lse_ok(), is_new ? relation.fault() : "");
      }
    for (const auto& [check, outcome] : subject.outcomes) subject.evidence.checks.push_back(outcome);
  }

  const PlannedCase& planned_;
  const std::vector<Candidate> kernels_;
  const JudgeOptions& options_;
  int threads_;
  std::map<std::string, InputsPtr> inputs_;  // by variant
  InputsPtr base_;
  std::vector<int64_t> tokens_;
  std::vector<Subject> subjects_;
  std::span<const int64_t> chunk_;  // of tokens_: has run, is yet to be judged
  double oracle_ms_ = 0;
};

}  // namespace

std::function<CaseResult()> run_case(const PlannedCase& planned, const std::vector<Candidate>& kernels, const JudgeOptions& options) {
  const auto judge = std::make_shared<CaseJudge>(planned, kernels, options);
  if (!judge->run()) return {};
  return [judge] { return judge->judge(); };
}

CaseResult judge_case(const PlannedCase& planned, const std::vector<Candidate>& kernels, const JudgeOptions& options,
                      std::unique_lock<std::mutex> turn) {
  const auto judge = run_case(planned, kernels, options);
  if (turn) turn.unlock();
  CaseResult result = judge ? judge() : CaseResult{};
  if (std::any_of(result.pairs.begin(), result.pairs.end(), [](const PairResult& pair) { return pair.left_out; })) return {};
  return result;
}

std::vector<int64_t> judged_tokens(const Inputs& in, int64_t rows) {
  const int64_t total = in.tokens(), wanted = rows == 0 ? total : std::min(total, (rows + in.c.h_q - 1) / in.c.h_q);
  std::set<int64_t> tokens(in.special_rows.begin(), in.special_rows.end());
  if (wanted == total) tokens.clear();
  for (int64_t i = 0; i < wanted; ++i) tokens.insert(wanted == total ? i : i * (total - 1) / std::max<int64_t>(1, wanted - 1));
  return {tokens.begin(), tokens.end()};
}

}  // namespace smla
