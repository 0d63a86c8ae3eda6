"""Mining: for every picture and every caption, the hardest negatives of the whole training set.

`mine` takes a trained model, `mine_offline_negatives` vectors. A mined folder is read by `load_negatives`.
"""

from vsecore.mining.folder import NegativesIdentity, load_negatives
from vsecore.mining.models import mine, negatives_identity
from vsecore.mining.vectors import mine_offline_negatives

__all__ = ["NegativesIdentity", "load_negatives", "mine", "mine_offline_negatives", "negatives_identity"]
