"""Teach a small model to answer from lecture notes."""

import torch
from datasets import load_dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from trl import SFTConfig, SFTTrainer

MODEL = "Qwen/Qwen2.5-14B"
LENGTH = 2048


def main():
    quantised = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )
    model = AutoModelForCausalLM.from_pretrained(
        MODEL, quantization_config=quantised, attn_implementation="flash_attention_2", dtype=torch.bfloat16
    )
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    arguments = SFTConfig(
        output_dir="out",
        max_length=LENGTH,
        packing=True,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=4,
        gradient_checkpointing=True,
        optim="paged_adamw_8bit",
        bf16=True,
    )
    lora = LoraConfig(r=32, lora_alpha=32, lora_dropout=0.05, target_modules="all-linear", task_type="CAUSAL_LM")
    data = load_dataset("json", data_files="notes.jsonl", split="train")
    SFTTrainer(model=model, args=arguments, train_dataset=data, processing_class=tokenizer, peft_config=lora).train()


if __name__ == "__main__":
    main()
