"""Data sets: files read into arrays or by batches, sequences of unequal lengths, texts, and changes of images."""

from singa_lite.data import transforms as transforms
from singa_lite.data.bucketed import Bucketed as Bucketed
from singa_lite.data.bucketed import bucketed as bucketed
from singa_lite.data.files import load_cifar10 as load_cifar10
from singa_lite.data.files import load_hdf5 as load_hdf5
from singa_lite.data.files import load_idx as load_idx
from singa_lite.data.files import load_npz as load_npz
from singa_lite.data.given import Epochs as Epochs
from singa_lite.data.given import Paired as Paired
from singa_lite.data.given import Processes as Processes
from singa_lite.data.images import ImageFolder as ImageFolder
from singa_lite.data.images import image_folder as image_folder
from singa_lite.data.language import chat as chat
from singa_lite.data.language import prompts as prompts
from singa_lite.data.language import texts as texts
from singa_lite.data.tables import csv as csv
from singa_lite.data.tables import parquet as parquet
from singa_lite.data.text_rows import Texts as Texts
from singa_lite.data.tokenizer import ByteTokenizer as ByteTokenizer
from singa_lite.data.tokenizer import Tokenizer as Tokenizer
