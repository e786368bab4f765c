// A model's forward pass over a slab: the phases of each layer, shared among threads.
#pragma once

#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <vector>

#include "threads.h"
#include "variant.h"

namespace kakeya {

// The structs from here to `Step` are filled by Python (interface.py), as are those of variant.h.
struct Layer {
  Linear qkv, out, gate_up, down;
  const float* attention_norm;
  const float* mlp_norm;
  const float* q_norm;  // or null, as k_norm
  const float* k_norm;
  int64_t rotates;
};

struct Model {
  Matrix embedding;
  Linear head;
  const float* final_norm;
  const Layer* layers;
  const double* frequencies;  // turns a token; [head_dim / 2]
  int64_t num_layers;
  int64_t hidden_size;
  int64_t intermediate_size;
  int64_t vocab_size;
  HeadShape heads;
};

// K and V of each layer, of its first lane: [kv_heads, slots, slot].
struct Slab {
  char* const* keys;
  char* const* values;
  float* final_hidden;  // [lanes, hidden]
  int64_t num_slots;
  int64_t lane_bytes;  // from a lane to the next
};

// One session's tokens in a step, and its keys in blocks of 16.
struct StepRow {
  int64_t lane;
  int64_t first_token;
  int64_t num_tokens;
  int64_t num_blocks;
  int64_t num_sink_blocks;
  int64_t first_kept;  // among the step's tokens that go on beyond the last layer's attention
  int64_t num_kept;    // of its tokens, the last ones
  const int32_t* slots;     // [blocks, 16], any slot where there is no key
  const uint16_t* visible;  // [tokens, blocks], a bit a key
};

struct Step {
  int64_t num_tokens;
  int64_t num_rows;
  int64_t num_kept;
  const int64_t* token_ids;         // [tokens], as the following
  const int64_t* slots;             // where K and V are written
  const int64_t* key_positions;
  const int64_t* recent_positions;  // of queries; the same by the law, and apart so that tests can break it
  const int64_t* sink_positions;
  const StepRow* rows;
  float* kept_hidden;  // gets the final hidden vectors, [kept, hidden]; null where only the lanes' are wanted
};

// Memory that grows when more is asked for, zeroed; aligned to cache lines.
template <class T>
class Buffer {
 public:
  T* reserve(int64_t num) {
    if (num > size_) {
      const size_t bytes = (num * sizeof(T) + 63) / 64 * 64;
      data_.reset(static_cast<T*>(std::aligned_alloc(64, bytes)));
      if (!data_) throw std::bad_alloc();
      std::memset(static_cast<void*>(data_.get()), 0, bytes);
      size_ = num;
    }
    return data_.get();
  }
  T* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

// Cosines and then sines of a position's angles; frequencies in turns a token.
void set_angle(const double* frequencies, int64_t half_head_dim, int64_t position, float* angle);

class Decoder {
 public:
  Decoder(const Model& model, const Variant& variant, int num_threads);

  void bind(const Slab& slab);
  // Runs a step; each row's last final hidden vector goes to its lane.
  void forward(const Step& step);
  // Of `num` of the final hidden vectors, those of the lanes where `hidden` is null; [num, vocab].
  void logits(const float* hidden, const int64_t* indices, int64_t num, float* target);

 private:
  // Some queries of one row and one kv head.
  struct Task {
    const StepRow* row;
    int64_t kv_head;
    int64_t first;  // flat queries
    int64_t num;
  };

  void reserve(const Step& step);
  void reserve_quantized(int64_t num_tokens);
  int64_t queries_at_once(const Step& step) const;
  void plan(const Step& step, bool kept_only, std::vector<Task>& tasks) const;
  void run(const Step& step, int thread);
  void begin(const Step& step, int thread);
  void layer(const Step& step, int number, int thread);
  void attend(const Step& step, int number, bool is_last, int thread);
  void write_heads(const Step& step, int number, int64_t token, const StepRow& row);
  void keep(const Step& step, int thread);
  void norm_and_quantize(const float* x, const float* weight, const Linear& linear, int64_t token, float* scratch);
  void multiply(int thread, const Linear& linear, int64_t num_tokens, const Target& target);
  int64_t lane_offset(int64_t lane, int64_t kv_head) const;
  float* scratch(int thread) const { return scratch_.get() + thread * scratch_size_; }

  const Model model_;
  const std::vector<Layer> layers_;
  const std::vector<double> frequencies_;
  const Variant& variant_;
  std::vector<char*> keys_, values_;  // of each layer
  float* final_hidden_ = nullptr;
  int64_t num_slots_ = 0, lane_bytes_ = 0;

  Quantized quantized_ = {};
  int64_t scores_size_ = 0;   // floats of a thread
  int64_t scratch_size_ = 0;  // likewise: one half to fold squares in, one for what is normed
  std::vector<Task> tasks_, last_tasks_;
  std::vector<const StepRow*> row_of_;   // [tokens]
  std::vector<const StepRow*> kept_of_;  // [kept]
  Buffer<float> hidden_, wide_, to_recent_, to_sinks_, mixed_, angles_, scores_, scratch_;
  Buffer<char> quantized_values_, quantized_bytes_;
  Buffer<float> quantized_scales_;
  Buffer<int32_t> quantized_corrections_;
  Buffer<int16_t> quantized_sums_;
  Threads threads_;  // last: they end before what they use
};

}  // namespace kakeya
