"""The writer of all formats, which is the whole package's."""

from singa_lite.common.atomic import replacing as replacing
