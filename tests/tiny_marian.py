"""A tiny random MarianMTModel with a word-level tokenizer, for tests that need some translator."""

import string

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import MarianConfig, MarianMTModel, PreTrainedTokenizerFast

WORDS = list(string.ascii_lowercase)


def tiny_tokenizer(model_max_length=32):
    """Words are letters; `</s>` ends every text."""
    vocabulary = {token: index for index, token in enumerate(["<pad>", "<unk>", "</s>", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        eos_token="</s>",
        model_max_length=model_max_length,
    )


def tiny_model(seed=0, max_position_embeddings=64):
    """Random weights, large enough that different sources get different translations."""
    torch.manual_seed(seed)
    config = MarianConfig(
        vocab_size=29,
        d_model=16,
        encoder_layers=1,
        decoder_layers=1,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        max_position_embeddings=max_position_embeddings,
        init_std=1.0,
        pad_token_id=0,
        eos_token_id=2,
        forced_eos_token_id=2,
        decoder_start_token_id=0,
    )
    model = MarianMTModel(config).eval()
    model.generation_config.bad_words_ids = [[0]]
    # Some translations end by themselves, others at their limit.
    model.final_logits_bias[:, 2] = 8
    return model


def save_tiny_marian(folder, seed=0):
    """Write a checkpoint with its tokenizer and return `folder`."""
    tiny_model(seed).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder
