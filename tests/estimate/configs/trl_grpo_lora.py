"""Reinforcement on sums: 8 completions for each prompt."""

from peft import LoraConfig
from rewards import right_answer
from trl import GRPOConfig, GRPOTrainer

training = GRPOConfig(
    output_dir="grpo",
    per_device_train_batch_size=8,
    num_generations=8,
    max_prompt_length=256,
    max_completion_length=512,
    gradient_accumulation_steps=2,
    bf16=True,
    model_init_kwargs={"dtype": "bfloat16", "attn_implementation": "sdpa"},
)
adapter = LoraConfig(r=16, target_modules=["q_proj", "k_proj", "v_proj", "o_proj"], task_type="CAUSAL_LM")
trainer = GRPOTrainer(
    model="Qwen/Qwen2.5-3B-Instruct",
    reward_funcs=right_answer,
    args=training,
    peft_config=adapter,
    train_dataset=None,
)
trainer.train()
