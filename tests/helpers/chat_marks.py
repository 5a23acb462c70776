"""The marks by which the chat templates of common models divide turns."""

from lpfloop.stores.chat_markers import MARKS

CHAT_MARKS = (
    *MARKS,
    *("<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|endoftext|>", "<|START_OF_TURN_TOKEN|>"),
    *("<|END_OF_TURN_TOKEN|>", "<|SYSTEM_TOKEN|>", "<|USER_TOKEN|>", "<|CHATBOT_TOKEN|>"),
    *("<\uff5cbegin▁of▁sentence\uff5c>", "<\uff5cend▁of▁sentence\uff5c>"),
    *("<\uff5cSystem\uff5c>", "<\uff5cUser\uff5c>", "<\uff5cAssistant\uff5c>", "<|system|>"),
    *("<|user|>", "<|assistant|>", "<|observation|>", "<|start|>", "<|message|>"),
    *("<|channel|>", "<|constrain|>", "<|end|>", "<|return|>", "<|call|>"),
    *("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"),
    *("<|eot_id|>", "<|eom_id|>", "<|python_tag|>", "<|header_start|>", "<|header_end|>"),
    *("<|eot|>", "<|eom|>", "<|object_ref_start|>"),
)
