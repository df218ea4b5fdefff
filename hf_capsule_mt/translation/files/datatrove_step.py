"""Translation as a step of a pipeline of datatrove, which brings Slurm, Ray and object stores.

pipeline = [JsonlReader("shards"), TranslationStep(CorpusTranslator(model)), JsonlWriter("translated")]
LocalPipelineExecutor(pipeline, tasks=8, workers=2, logging_dir="logs").run()
"""

from collections.abc import Iterator
from dataclasses import asdict

from datatrove.data import Document, DocumentsPipeline
from datatrove.pipeline.base import PipelineStep

from hf_capsule_mt.data.row_files import in_parts

from .rows import CorpusTranslator, RowCounts


class TranslationStep(PipelineStep):
    """Adds the translation of a document to its metadata. The statistics of a run count its sentences.

    A task translates its documents in parts, as the command does, so that a killed task begins again and writes the
    same. Documents keep their order and their text.

    Args:
        translator: names the new key, and a key for the numbers of a document if it has a name for one. The other
            names of columns are not used: the reader says which text a document has.
    """

    type = "🌐 - TRANSLATION"
    name = "hf-capsule-mt"

    def __init__(self, translator: CorpusTranslator) -> None:
        super().__init__()
        self.translator = translator

    def run(self, data: DocumentsPipeline, rank: int = 0, world_size: int = 1) -> Iterator[Document]:
        """Yield the documents of a task, with their translations."""
        for part in in_parts((document, document.text) for document in data):
            with self.track_time("part"):
                self._translate(part)
            yield from part

    def _translate(self, documents: list[Document]) -> None:
        translations, counts = self.translator.translate(document.text for document in documents)
        for document, translation, of_document in zip(documents, translations, counts, strict=True):
            document.metadata[self.translator.translation_column] = translation
            if self.translator.report_column is not None:
                document.metadata[self.translator.report_column] = asdict(of_document)
        for name, number in asdict(sum(counts, RowCounts())).items():
            self.stat_update(name, value=number, unit="part")
