"""The families of which candidates can be, by the names that files have."""

from adats.models.beta.belief import BetaArms
from adats.models.core.product import ProductArms
from adats.models.gamma.belief import ExponentialArms, PoissonArms
from adats.models.gaussian.belief import GaussianArms

FAMILIES: dict[str, type[ProductArms]] = {
    cls.__name__: cls for cls in (BetaArms, PoissonArms, ExponentialArms, GaussianArms)
}
