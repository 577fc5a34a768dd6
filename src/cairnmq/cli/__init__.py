"""The command `cairn`: parse, call, print. A command's module loads only when it is used: serving starts fast."""
