"""Writes the JSON schemas that are shipped with closeby (`make schemas`)."""

from tests.schemas import DOCUMENTS, FOLDER, text_of

for name, document in DOCUMENTS.items():
    (FOLDER / f"{name}.json").write_text(text_of(document))
