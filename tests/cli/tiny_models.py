"""Tokenizers of 97 ids for the tiny models of tests/fixtures, one for each representation of the space between two words."""


def byte_level():
    """GPT-2's representation: a space is an ordinary byte. Printable ASCII, space, newline and one merged pair."""
    pieces = [chr(code) for code in range(33, 127)] + ["\u0120", "\u010a", "in"]
    style = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": style,
        "post_processor": None,
        "decoder": style | {"add_prefix_space": True},
        "model": {"type": "BPE", "vocab": {piece: index for index, piece in enumerate(pieces)}, "merges": ["i n"]},
    }


def sentencepiece():
    """Llama-2's representation: a text gets a leading space, removed when decoding. Half of the tokens begin with one."""
    letters = [chr(code) for code in range(97, 123)]
    pieces = ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581", *letters, *("\u2581" + letter for letter in letters)]
    pieces += [chr(code) for code in range(33, 65)] + list("_[]{}TOA")
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    space = {"String": "\u2581"}
    return {
        "version": "1.0",
        "added_tokens": [{"id": index, "content": pieces[index]} | special for index in range(3)],
        "normalizer": {"type": "Sequence", "normalizers": [
            {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}},
        },
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": space, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
        "model": {
            "type": "BPE", "unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True,
            "vocab": {piece: index for index, piece in enumerate(pieces)},
            "merges": [f"\u2581 {letter}" for letter in letters],
        },
    }


KINDS = {"byte-level": byte_level, "SentencePiece": sentencepiece}
