"""The papers behind a model, by the fields of its configuration."""

from dataclasses import dataclass

from transformers import PreTrainedConfig


@dataclass(frozen=True)
class Paper:
    """A publication to name and to cite."""

    key: str
    """BibTeX key."""
    authors: str
    """As BibTeX takes them."""
    title: str
    booktitle: str
    year: int
    arxiv: str
    """Number of the preprint."""

    @property
    def name(self) -> str:
        """As a text refers to it: `Dou et al. 2019`."""
        return f"{self.authors.partition(',')[0]} et al. {self.year}"

    @property
    def url(self) -> str:
        """Address of the preprint."""
        return f"https://arxiv.org/abs/{self.arxiv}"

    @property
    def bibtex(self) -> str:
        """The entry of a bibliography."""
        fields = {"title": f"{{{self.title}}}", "author": self.authors, "booktitle": self.booktitle, "year": self.year}
        lines = [f"  {name} = {{{value}}}," for name, value in fields.items()]
        return "\n".join([f"@inproceedings{{{self.key},", *lines, "}"])


BAHDANAU = Paper(
    key="bahdanau2015neural",
    authors="Bahdanau, Dzmitry and Cho, Kyunghyun and Bengio, Yoshua",
    title="Neural Machine Translation by Jointly Learning to Align and Translate",
    booktitle="International Conference on Learning Representations",
    year=2015,
    arxiv="1409.0473",
)
VASWANI = Paper(
    key="vaswani2017attention",
    authors=(
        "Vaswani, Ashish and Shazeer, Noam and Parmar, Niki and Uszkoreit, Jakob and Jones, Llion and "
        "Gomez, Aidan N. and Kaiser, {\\L}ukasz and Polosukhin, Illia"
    ),
    title="Attention Is All You Need",
    booktitle="Advances in Neural Information Processing Systems",
    year=2017,
    arxiv="1706.03762",
)
DOU = Paper(
    key="dou2019dynamic",
    authors="Dou, Zi-Yi and Tu, Zhaopeng and Wang, Xing and Wang, Longyue and Shi, Shuming and Zhang, Tong",
    title="Dynamic Layer Aggregation for Neural Machine Translation with Routing-by-Agreement",
    booktitle="Proceedings of the AAAI Conference on Artificial Intelligence",
    year=2019,
    arxiv="1902.05770",
)
LI = Paper(
    key="li2019information",
    authors="Li, Jian and Yang, Baosong and Dou, Zi-Yi and Wang, Xing and Lyu, Michael R. and Tu, Zhaopeng",
    title="Information Aggregation for Multi-Head Attention with Routing-by-Agreement",
    booktitle="Proceedings of NAACL-HLT",
    year=2019,
    arxiv="1904.03100",
)
ZHENG = Paper(
    key="zheng2019dynamic",
    authors="Zheng, Zaixiang and Huang, Shujian and Tu, Zhaopeng and Dai, Xin-Yu and Chen, Jiajun",
    title="Dynamic Past and Future for Neural Machine Translation",
    booktitle="Proceedings of EMNLP-IJCNLP",
    year=2019,
    arxiv="1904.09646",
)
WANG = Paper(
    key="wang2019towards",
    authors="Wang, Mingxuan and Xie, Jun and Tan, Zhixing and Su, Jinsong and Xiong, Deyi and Li, Lei",
    title="Towards Linear Time Neural Machine Translation with Capsule Networks",
    booktitle="Proceedings of EMNLP-IJCNLP",
    year=2019,
    arxiv="1811.00287",
)


def papers_of(config: PreTrainedConfig) -> list[Paper]:
    """The papers whose methods a model with this configuration uses, the oldest first."""
    used = {
        BAHDANAU: config.model_type == "rnmt",
        VASWANI: config.model_type == "capsule_aggregated_marian",
        DOU: getattr(config, "layer_aggregation", None) is not None,
        LI: getattr(config, "head_aggregation", None) is not None,
        ZHENG: getattr(config, "guided_routing", None) is not None,
        WANG: getattr(config, "sentence_aggregation", None) is not None,
    }
    return [paper for paper, is_used in used.items() if is_used]
