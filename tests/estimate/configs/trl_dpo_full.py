"""Preference tuning of a small model, every weight trained."""

from datasets import load_dataset
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

common = dict(bf16=True, gradient_checkpointing=True, max_length=1024)  # noqa: C408
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct", dtype="bfloat16")
tokenizer = AutoTokenizer.from_pretrained("Qwen/Qwen2.5-1.5B-Instruct")
config = DPOConfig(output_dir="dpo", per_device_train_batch_size=2, optim="adamw_torch", beta=0.1, **common)
DPOTrainer(model=model, args=config, train_dataset=load_dataset("pairs")["train"], processing_class=tokenizer).train()
