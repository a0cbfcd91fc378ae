"""The model's configuration: one dataclass read from (and written to) a released-style config.json."""
import dataclasses
import json
from dataclasses import dataclass, field


@dataclass
class Config:
    vocab_size: int = 8192
    hidden_size: int = 288
    num_hidden_layers: int = 8
    num_attention_heads: int = 8
    head_dim: int = 64
    qk_rope_head_dim: int = 32
    q_lora_rank: int = 128
    o_groups: int = 2
    o_lora_rank: int = 128
    sliding_window: int = 64
    rope_theta: float = 10000.0
    compress_rope_theta: float = 160000.0
    rope_scaling: dict | None = None
    max_position_embeddings: int = 2048
    compress_ratios: list = field(default_factory=list)
    kv_source_layer_ids: list = field(default_factory=list)
    index_source_layer_ids: list = field(default_factory=list)
    candidate_source_layer_id: int = -1
    candidate_topk_blocks: int = 32
    candidate_block_size: int = 8
    index_n_heads: int = 4
    index_head_dim: int = 32
    index_topk: int = 64
    moe_intermediate_size: int = 96
    n_routed_experts: int = 16
    n_shared_experts: int = 1
    num_experts_per_tok: int = 4
    scoring_func: str = "sqrtsoftplus"
    gate_temp: float = 1.0
    norm_topk_prob: bool = True
    routed_scaling_factor: float = 1.5
    swiglu_limit: float = 10.0
    hc_mult: int = 4
    hc_sinkhorn_iters: int = 20
    hc_eps: float = 1e-6
    rms_norm_eps: float = 1e-20
    engram_layer_ids: list = field(default_factory=list)
    engram_vocab_size: int = 500
    engram_num_embeddings: list = field(default_factory=list)
    engram_max_ngram_size: int = 4
    engram_n_heads: int = 4
    engram_head_dim: int = 64
    engram_pad_id: int = 2
    engram_compressed_vocab_size: int = 0
    image_token_id: int = -1
    bos_token_id: int = 0
    eos_token_id: int = 1

    @property
    def engram_columns(self):
        return (self.engram_max_ngram_size - 1) * self.engram_n_heads

    @staticmethod
    def load(path):
        """Reads config.json. The text part may sit in `text_config`; unknown keys are ignored."""
        with open(path) as f:
            raw = json.load(f)
        flat = {**raw, **raw.get("text_config", {})}
        if flat.get("engram_pad_id") is None and "engram_pad_token_id" in flat:
            flat["engram_pad_id"] = flat["engram_pad_token_id"]
        known = {f.name for f in dataclasses.fields(Config)}
        return Config(**{k: v for k, v in flat.items() if k in known})

    def released(self):
        """The composite config.json of the released layout, as a dict."""
        text = dataclasses.asdict(self)
        image = text.pop("image_token_id")
        text.update(
            model_type="deepseek_v41_text", num_key_value_heads=1, hidden_act="silu", topk_method="noaux_tc",
            expert_dtype="fp4", tie_word_embeddings=False, attention_bias=False, attention_dropout=0.0,
            initializer_range=0.02, use_cache=True, engram_pad_token_id=self.engram_pad_id,
            num_nextn_predict_layers=0)
        return {
            "architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41", "dtype": "bfloat16",
            "bos_token_id": self.bos_token_id, "eos_token_id": self.eos_token_id, "pad_token_id": self.engram_pad_id,
            "image_token_id": image, "tie_word_embeddings": False, "expert_dtype": "fp4",
            "quantization_config": {
                "quant_method": "fp8", "fmt": "e4m3", "scale_fmt": "ue8m0", "weight_block_size": [32, 32],
                "activation_scheme": "dynamic", "expert_dtype": "fp4"},
            "text_config": text,
        }
