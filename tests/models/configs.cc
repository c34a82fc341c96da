#include "tests/models/configs.h"

namespace spiritlevel {

using nlohmann::json;

json Llama8B() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"model_type", "llama"},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"vocab_size", 128256},
          {"max_position_embeddings", 131072},
          {"hidden_act", "silu"},
          {"attention_bias", false},
          {"mlp_bias", false},
          {"tie_word_embeddings", false}};
}

json Llama405B() {
  json config = Llama8B();
  config["hidden_size"] = 16384;
  config["intermediate_size"] = 53248;
  config["num_hidden_layers"] = 126;
  config["num_attention_heads"] = 128;
  return config;
}

json Qwen06B() {
  return {{"architectures", {"Qwen3ForCausalLM"}},
          {"model_type", "qwen3"},
          {"hidden_size", 1024},
          {"intermediate_size", 3072},
          {"num_hidden_layers", 28},
          {"num_attention_heads", 16},
          {"num_key_value_heads", 8},
          {"head_dim", 128},
          {"vocab_size", 151936},
          {"attention_bias", false},
          {"use_sliding_window", false},
          {"tie_word_embeddings", true}};
}

json Mistral7B() {
  return {{"architectures", {"MistralForCausalLM"}},
          {"model_type", "mistral"},
          {"hidden_size", 4096},
          {"intermediate_size", 14336},
          {"num_hidden_layers", 32},
          {"num_attention_heads", 32},
          {"num_key_value_heads", 8},
          {"sliding_window", 4096},
          {"vocab_size", 32000},
          {"tie_word_embeddings", false}};
}

json Gpt2Small() {
  return {{"architectures", {"GPT2LMHeadModel"}},
          {"model_type", "gpt2"},
          {"n_embd", 768},
          {"n_layer", 12},
          {"n_head", 12},
          {"n_positions", 1024},
          {"activation_function", "gelu_new"},
          {"vocab_size", 50257}};
}

json NeoX() {
  return {{"architectures", {"GPTNeoXForCausalLM"}},
          {"model_type", "gpt_neox"},
          {"hidden_size", 512},
          {"intermediate_size", 2048},
          {"num_hidden_layers", 6},
          {"num_attention_heads", 8},
          {"vocab_size", 50304},
          {"tie_word_embeddings", false}};
}

json Gemma() {
  return {{"architectures", {"Gemma2ForCausalLM"}},
          {"model_type", "gemma2"},
          {"hidden_size", 2304},
          {"intermediate_size", 9216},
          {"num_hidden_layers", 26},
          {"num_attention_heads", 8},
          {"num_key_value_heads", 4},
          {"head_dim", 256},
          {"sliding_window", 4096},
          {"attn_logit_softcapping", 50.0},
          {"final_logit_softcapping", 30.0},
          {"vocab_size", 256000}};
}

Architecture PaperGpt(int64_t layers, int64_t hidden, int64_t heads, bool dropout) {
  Architecture a;
  a.name = "GPT";
  a.layers = layers;
  a.hidden = hidden;
  a.heads = a.kv_heads = heads;
  a.head_dim = hidden / heads;
  a.ffn = 4 * hidden;
  a.vocabulary = 50257;
  a.max_positions = 8192;
  a.learned_positions = true;
  a.gated_mlp = false;
  a.norm = NormKind::kLayer;
  a.norm_bias = a.qkv_bias = a.attention_output_bias = a.mlp_bias = true;
  a.residual_dropout = a.attention_dropout = a.embedding_dropout = dropout;
  return a;
}

}  // namespace spiritlevel
