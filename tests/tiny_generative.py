"Tiny generative vision-language models with random weights, saved as transformers saves them."

import torch

WORDS = "a red blue green dog cat horse on mat under the Yes No yes no . ? : USER ASSISTANT Describe this image".split()
CHAT = (
    "{% for message in messages %}USER : {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
    " ASSISTANT :"
)
TEXT = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}


def tokenizer(*special):
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<unk>", "<pad>", "<s>", "</s>", *special, *WORDS]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"unk_token": "<unk>", "pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>"}
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, **names, additional_special_tokens=list(special)
    )


def save(folder, model, processor, dtype):
    # weights so large that the answers of the model differ
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(8)
    model.to(dtype).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def write_llava(folder, dtype=torch.float32, chat=CHAT):
    "A model in LLaVA's form: images of one size."
    import transformers

    words = tokenizer("<image>")
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**TEXT, image_size=32, patch_size=16),
        text_config=transformers.LlamaConfig(**TEXT, vocab_size=len(words), max_position_embeddings=256),
        image_token_index=words.convert_tokens_to_ids("<image>"),
    )
    pixels = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    layout = {"patch_size": 16, "vision_feature_select_strategy": "default", "num_additional_image_tokens": 1}
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(config)
    return save(folder, model, transformers.LlavaProcessor(pixels, words, **layout, chat_template=chat), dtype)


def write_qwen(folder, dtype=torch.float32):
    "A model in the form of Qwen2-VL: an image has as many tokens as its size asks for."
    import transformers

    words = tokenizer("<|image_pad|>", "<|video_pad|>", "<|vision_start|>", "<|vision_end|>")
    text = TEXT | {"num_key_value_heads": 2, "vocab_size": len(words), "max_position_embeddings": 512}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [1, 1, 2]}}
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 16, "num_heads": 2, "patch_size": 4, "mlp_ratio": 2}
    ids = {
        f"{name}_token_id": words.convert_tokens_to_ids(token)
        for name, token in (
            ("image", "<|image_pad|>"),
            ("video", "<|video_pad|>"),
            ("vision_start", "<|vision_start|>"),
            ("vision_end", "<|vision_end|>"),
        )
    }
    config = transformers.Qwen2VLConfig(text_config=text, vision_config=vision, **ids)
    pixels = transformers.Qwen2VLImageProcessor(patch_size=4, size={"shortest_edge": 64, "longest_edge": 16 * 64})
    chat = CHAT.replace("<image>", "<|vision_start|><|image_pad|><|vision_end|>")
    torch.manual_seed(0)
    model = transformers.Qwen2VLForConditionalGeneration(config)
    video = transformers.Qwen2VLVideoProcessor(patch_size=4)
    return save(folder, model, transformers.Qwen2VLProcessor(pixels, words, video, chat_template=chat), dtype)


def write_paligemma(folder, dtype=torch.float32):
    "A model in PaliGemma's form: its prompt is read in both directions."
    import transformers

    words = tokenizer("<image>")
    text = TEXT | {"model_type": "gemma", "num_key_value_heads": 2, "head_dim": 8, "vocab_size": len(words) + 2000}
    vision = TEXT | {"model_type": "siglip_vision_model", "image_size": 32, "patch_size": 16, "projection_dim": 16}
    image = words.convert_tokens_to_ids("<image>")
    config = transformers.PaliGemmaConfig(
        text_config=text, vision_config=vision, image_token_index=image, projection_dim=16
    )
    pixels = transformers.SiglipImageProcessor(size={"height": 32, "width": 32})
    pixels.image_seq_length = 4
    torch.manual_seed(0)
    model = transformers.PaliGemmaForConditionalGeneration(config)
    return save(folder, model, transformers.PaliGemmaProcessor(pixels, words), dtype)
