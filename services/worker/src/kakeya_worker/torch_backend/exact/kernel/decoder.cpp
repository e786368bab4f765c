#include "decoder.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kakeya {
namespace {

constexpr double kTwoPi = 6.283185307179586;
constexpr double kSin[] = {1.0,          -1.0 / 6,        1.0 / 120,        -1.0 / 5040,
                           1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800, -1.0 / 1307674368000};
constexpr double kCos[] = {1.0,           -1.0 / 2,        1.0 / 24,           -1.0 / 720,           1.0 / 40320,
                           -1.0 / 3628800, 1.0 / 479001600, -1.0 / 87178291200, 1.0 / 20922789888000};

template <size_t kNum>
double polynomial(double x, const double (&coefficients)[kNum]) {
  double value = coefficients[kNum - 1];
  for (size_t i = kNum - 1; i-- > 0;) value = value * x + coefficients[i];
  return value;
}

constexpr int64_t kTasksOfThread = 2;  // of attention in a layer, at least: one that is slower than the others takes one less
constexpr int64_t kAngles = 3;  // of each token: its key's, and its query's against recent keys and against sinks

// Of a row, the first token that goes on beyond the last layer's attention, among the step's.
int64_t first_kept(const StepRow& row) { return row.first_token + row.num_tokens - row.num_kept; }

int64_t num_panels(const Matrix& matrix) { return (matrix.out + kPanel - 1) / kPanel; }

int64_t num_panels(const Linear& linear) {
  int64_t num = 0;
  for (int64_t i = 0; i < linear.num_parts; ++i) num += num_panels(linear.parts[i]);
  return num;
}

}  // namespace

void set_angle(const double* frequencies, int64_t half, int64_t position, float* angle) {
  for (int64_t i = 0; i < half; ++i) {
    const double turns = static_cast<double>(position) * frequencies[i];
    const double fraction = turns - std::nearbyint(turns);
    const double quarter = std::nearbyint(fraction * 4);
    const double x = (fraction - quarter * 0.25) * kTwoPi;
    const double cos = polynomial(x * x, kCos), sin = x * polynomial(x * x, kSin);
    const int quadrant = static_cast<int>(quarter) & 3;
    const double turned_cos = quadrant & 1 ? sin : cos, turned_sin = quadrant & 1 ? cos : sin;
    angle[i] = static_cast<float>(quadrant == 1 || quadrant == 2 ? -turned_cos : turned_cos);
    angle[half + i] = static_cast<float>(quadrant >= 2 ? -turned_sin : turned_sin);
  }
}

Decoder::Decoder(const Model& model, const Variant& variant, int num_threads)
    : model_(model),
      layers_(model.layers, model.layers + model.num_layers),
      frequencies_(model.frequencies, model.frequencies + model.heads.head_dim / 2),
      variant_(variant),
      threads_(num_threads) {
  int64_t widest = model.embedding.in, highest_power = 16;
  for (const Layer& layer : layers_)
    for (const Linear* linear : {&layer.qkv, &layer.out, &layer.gate_up, &layer.down})
      widest = std::max(widest, linear->parts->in);
  while (highest_power < widest) highest_power *= 2;
  quantized_.stride = Quantized::stride_for(widest);
  scratch_size_ = 2 * highest_power;
  scratch_.reserve(num_threads * scratch_size_);
}

void Decoder::bind(const Slab& slab) {
  final_hidden_ = slab.final_hidden;
  num_slots_ = slab.num_slots;
  lane_bytes_ = slab.lane_bytes;
  keys_.assign(slab.keys, slab.keys + model_.num_layers);
  values_.assign(slab.values, slab.values + model_.num_layers);
}

void Decoder::forward(const Step& step) {
  reserve(step);
  plan(step, false, tasks_);
  plan(step, true, last_tasks_);
  threads_.run([&](int thread) { run(step, thread); });
}

void Decoder::logits(const float* hidden, const int64_t* indices, int64_t num, float* target) {
  if (!hidden) hidden = final_hidden_;
  reserve_quantized(num);
  threads_.run([&](int thread) {
    threads_.share(thread, num, 1, [&](int64_t index, int64_t) {
      variant_.quantize(hidden + indices[index] * model_.hidden_size, model_.head, quantized_, index);
    });
    multiply(thread, model_.head, num, {target, model_.vocab_size, false});
  });
}

void Decoder::reserve(const Step& step) {
  const HeadShape& heads = model_.heads;
  const int64_t num = step.num_tokens;
  const int64_t query_floats = heads.num_heads * heads.padded_head_dim;
  hidden_.reserve(num * model_.hidden_size);
  wide_.reserve(num * std::max(2 * model_.intermediate_size, (heads.num_heads + 2 * heads.num_kv_heads) * heads.head_dim));
  to_recent_.reserve(num * query_floats);
  to_sinks_.reserve(num * query_floats);
  mixed_.reserve(num * std::max(heads.num_heads * heads.head_dim, model_.intermediate_size));
  angles_.reserve(num * kAngles * heads.head_dim);
  reserve_quantized(num);
  int64_t most_blocks = 0;
  row_of_.assign(num, nullptr);
  kept_of_.assign(step.num_kept, nullptr);
  for (const StepRow* row = step.rows; row != step.rows + step.num_rows; ++row) {
    most_blocks = std::max(most_blocks, row->num_blocks);
    std::fill_n(row_of_.begin() + row->first_token, row->num_tokens, row);
    std::fill_n(kept_of_.begin() + row->first_kept, row->num_kept, row);
  }
  scores_size_ = heads.tile_queries() * most_blocks * kBlock;
  scores_.reserve(threads_.num() * scores_size_);
}

void Decoder::reserve_quantized(int64_t num_tokens) {
  quantized_.values = quantized_values_.reserve(num_tokens * quantized_.stride);
  quantized_.bytes = quantized_bytes_.reserve(num_tokens * quantized_.stride);
  quantized_.scales = quantized_scales_.reserve(num_tokens);
  quantized_.corrections = quantized_corrections_.reserve(num_tokens * quantized_.num_corrections());
  quantized_.sums = quantized_sums_.reserve(num_tokens * quantized_.num_sums());
}

// As many as a tile takes, unless threads would have nothing to do then.
int64_t Decoder::queries_at_once(const Step& step) const {
  const int64_t num = step.num_tokens * model_.heads.num_heads, num_tasks = threads_.num() * kTasksOfThread;
  const int64_t share = (num + num_tasks - 1) / num_tasks;
  const int64_t whole_tiles = (share + kFloatTileQueries - 1) / kFloatTileQueries * kFloatTileQueries;
  return std::min(whole_tiles, model_.heads.tile_queries());
}

void Decoder::plan(const Step& step, bool kept_only, std::vector<Task>& tasks) const {
  tasks.clear();
  const int64_t group = model_.heads.group(), at_once = queries_at_once(step);
  for (int64_t index = 0; index < step.num_rows; ++index) {
    const StepRow& row = step.rows[index];
    const int64_t begin = kept_only ? (row.num_tokens - row.num_kept) * group : 0, end = row.num_tokens * group;
    for (int64_t kv_head = 0; kv_head < model_.heads.num_kv_heads; ++kv_head)
      for (int64_t first = begin; first < end; first += at_once)
        tasks.push_back({&row, kv_head, first, std::min(at_once, end - first)});
  }
}

void Decoder::run(const Step& step, int thread) {
  begin(step, thread);
  for (int number = 0; number < model_.num_layers; ++number) layer(step, number, thread);
  keep(step, thread);
}

void Decoder::begin(const Step& step, int thread) {
  threads_.share(thread, step.num_tokens, 1, [&](int64_t token, int64_t) {
    variant_.embed(model_.embedding, step.token_ids[token], hidden_.get() + token * model_.hidden_size);
    const int64_t size = model_.heads.head_dim;
    float* angles = angles_.get() + token * kAngles * size;
    set_angle(frequencies_.data(), size / 2, step.key_positions[token], angles);
    set_angle(frequencies_.data(), size / 2, step.recent_positions[token], angles + size);
    set_angle(frequencies_.data(), size / 2, step.sink_positions[token], angles + 2 * size);
  });
}

void Decoder::layer(const Step& step, int number, int thread) {
  const Layer& layer = layers_[number];
  const HeadShape& heads = model_.heads;
  const int64_t hidden = model_.hidden_size, inner = model_.intermediate_size;
  const int64_t num_heads = heads.num_heads + 2 * heads.num_kv_heads, attention = heads.num_heads * heads.head_dim;
  float* scratch = this->scratch(thread);
  int64_t num_tokens = step.num_tokens;
  const auto x = [&](int64_t token) { return hidden_.get() + token * hidden; };

  threads_.share(thread, num_tokens, 1, [&](int64_t token, int64_t) {
    norm_and_quantize(x(token), layer.attention_norm, layer.qkv, token, scratch);
  });
  multiply(thread, layer.qkv, num_tokens, {wide_.get(), num_heads * heads.head_dim, false});
  threads_.share(thread, num_tokens, 1, [&](int64_t token, int64_t) { write_heads(step, number, token, *row_of_[token]); });

  const bool is_last = number + 1 == model_.num_layers;  // from there only some go on: of most rows the last token
  attend(step, number, is_last, thread);
  if (is_last) num_tokens = step.num_kept;

  threads_.share(thread, num_tokens, 1, [&](int64_t token, int64_t) {
    variant_.quantize(mixed_.get() + token * attention, layer.out, quantized_, token);
  });
  multiply(thread, layer.out, num_tokens, {hidden_.get(), hidden, true});
  threads_.share(thread, num_tokens, 1, [&](int64_t token, int64_t) {
    norm_and_quantize(x(token), layer.mlp_norm, layer.gate_up, token, scratch);
  });
  multiply(thread, layer.gate_up, num_tokens, {wide_.get(), 2 * inner, false});
  threads_.share(thread, num_tokens, 1, [&](int64_t token, int64_t) {
    float* activated = mixed_.get() + token * inner;
    variant_.swiglu(wide_.get() + token * 2 * inner, inner, activated);
    variant_.quantize(activated, layer.down, quantized_, token);
  });
  multiply(thread, layer.down, num_tokens, {hidden_.get(), hidden, true});
}

void Decoder::write_heads(const Step& step, int number, int64_t token, const StepRow& row) {
  const Layer& layer = layers_[number];
  const HeadShape& heads = model_.heads;
  const int64_t d = heads.head_dim, query_floats = heads.num_heads * heads.padded_head_dim;
  const float* angles = angles_.get() + token * kAngles * d;
  const int64_t slot = lane_offset(row.lane, 0) + step.slots[token] * heads.slot_bytes();
  variant_.heads(heads, {
                            .qkv = wide_.get() + token * (heads.num_heads + 2 * heads.num_kv_heads) * d,
                            .q_norm = layer.q_norm,
                            .k_norm = layer.k_norm,
                            .key_angle = layer.rotates ? angles : nullptr,
                            .recent_angle = layer.rotates ? angles + d : nullptr,
                            .sink_angle = layer.rotates ? angles + 2 * d : nullptr,
                            .to_recent = to_recent_.get() + token * query_floats,
                            .to_sinks = to_sinks_.get() + token * query_floats,
                            .keys = keys_[number] + slot,
                            .values = values_[number] + slot,
                            .head_stride = num_slots_ * heads.slot_bytes(),
                        });
}

void Decoder::attend(const Step& step, int number, bool is_last, int thread) {
  const HeadShape& heads = model_.heads;
  const std::vector<Task>& tasks = is_last ? last_tasks_ : tasks_;
  const int64_t num_tasks = static_cast<int64_t>(tasks.size());
  const auto attention_of = [&](const Task& task) {
    const StepRow& row = *task.row;
    const int64_t head = task.kv_head * heads.group();
    const int64_t query = row.first_token * heads.num_heads + head;
    const int64_t lane = lane_offset(row.lane, task.kv_head);
    // In the last layer the tokens that are kept lie one after the other.
    const int64_t moved = is_last ? row.first_kept - first_kept(row) : 0;
    return Attention{
        .to_recent = to_recent_.get() + query * heads.padded_head_dim,
        .to_sinks = to_sinks_.get() + query * heads.padded_head_dim,
        .keys = keys_[number] + lane,
        .values = values_[number] + lane,
        .slots = row.slots,
        .visible = row.visible,
        .num_blocks = static_cast<int32_t>(row.num_blocks),
        .num_sink_blocks = static_cast<int32_t>(row.num_sink_blocks),
        .num_queries = static_cast<int32_t>(row.num_tokens),
        .mixed = mixed_.get() + (query + moved * heads.num_heads) * heads.head_dim,
        .scores = scores_.get() + thread * scores_size_,
        .next = nullptr,
    };
  };
  if (is_last && thread == 0)
    for (int64_t index = 0; index < step.num_rows; ++index) {
      const StepRow& row = step.rows[index];
      std::memmove(hidden_.get() + row.first_kept * model_.hidden_size, hidden_.get() + first_kept(row) * model_.hidden_size,
                   row.num_kept * model_.hidden_size * sizeof(float));
    }
  const int64_t part = std::clamp<int64_t>(num_tasks / (threads_.num() * 4), 1, 16);
  threads_.share(thread, num_tasks, part, [&](int64_t first, int64_t last) {
    Attention attention = attention_of(tasks[first]);
    for (; first < last; ++first) {
      // Mostly this thread has what comes after its part, too.
      const Attention next = first + 1 < num_tasks ? attention_of(tasks[first + 1]) : Attention{};
      if (first + 1 < num_tasks) attention.next = &next;
      variant_.attend(heads, attention, tasks[first].first, tasks[first].num);
      attention = next;
    }
  });
}

void Decoder::keep(const Step& step, int thread) {
  const int64_t size = model_.hidden_size;
  threads_.share(thread, step.num_kept, 1, [&](int64_t index, int64_t) {
    const StepRow& row = *kept_of_[index];
    const bool is_last = index == row.first_kept + row.num_kept - 1;
    float* kept = step.kept_hidden ? step.kept_hidden + index * size : nullptr;
    float* target = is_last ? final_hidden_ + row.lane * size : kept;
    variant_.norm(hidden_.get() + index * size, model_.final_norm, model_.heads.eps, size, target, scratch(thread));
    if (is_last && kept) std::memcpy(kept, target, size * sizeof(float));
  });
}

void Decoder::norm_and_quantize(const float* x, const float* weight, const Linear& linear, int64_t token, float* scratch) {
  float* normed = scratch + scratch_size_ / 2;
  variant_.norm(x, weight, model_.heads.eps, model_.hidden_size, normed, scratch);
  variant_.quantize(normed, linear, quantized_, token);
}

void Decoder::multiply(int thread, const Linear& linear, int64_t num_tokens, const Target& target) {
  threads_.share(thread, num_panels(linear), 1, [&](int64_t first, int64_t last) {
    int64_t before = 0;
    Target of_part = target;
    for (int64_t i = 0; i < linear.num_parts; ++i) {
      const Matrix& part = linear.parts[i];
      const int64_t begin = std::max(first - before, int64_t{0}), end = std::min(last - before, num_panels(part));
      if (begin < end) variant_.product(part, quantized_, num_tokens, begin, end, of_part);
      before += num_panels(part);
      of_part.y += part.out;
    }
  });
}

int64_t Decoder::lane_offset(int64_t lane, int64_t kv_head) const {
  return lane * lane_bytes_ + kv_head * num_slots_ * model_.heads.slot_bytes();
}

}  // namespace kakeya
