"""Words that tasks are made of; short and common, so that small tokenisers split few of them."""

from __future__ import annotations


def _listed(text: str) -> tuple[str, ...]:
    """The words of a text."""
    return tuple(text.split())


NAMES = _listed(
    """
    Mia Tom Ana Ben Eva Sam Lea Max Zoe Ian Amy Leo Ida Kai Nina Paul Rosa Hugo Lily Omar Vera Noah Emma Adam Clara
    Felix Grace Henry Irene Jack Karen Lucas Maria Oscar Peter Ruth Simon Tara Victor Wendy Alice Bruno Carl Diana Erik
    Fiona George Helen Ivan Julia Kevin Laura Martin Nora Oliver Rachel Sarah Thomas Walter Anna David James Emily
    Daniel
    """
)
CITIES = _listed(
    """
    Paris Rome Berlin Madrid London Dublin Vienna Prague Oslo Athens Lisbon Cairo Delhi Tokyo Seoul Lima Boston Chicago
    Dallas Denver Miami Houston Phoenix Seattle Toronto Sydney Milan Venice Geneva Munich
    """
)
JOBS = _listed(
    """
    teacher doctor nurse baker farmer lawyer driver pilot painter singer writer dancer actor judge chef engineer plumber
    sailor soldier tailor
    """
)
COLOURS = _listed(
    """
    red blue green black white yellow pink brown gray orange purple gold
    """
)
ANIMALS = _listed(
    """
    dog cat horse rabbit parrot hamster turtle goat sheep duck pony snake mouse goose pig cow
    """
)
HOBBIES = _listed(
    """
    chess tennis golf yoga soccer hockey piano guitar drums poker cricket skiing running swimming
    """
)
FOODS = _listed(
    """
    rice bread cheese soup pasta pizza salad fish eggs tea coffee milk honey cake beans corn apples
    """
)
GOODS = _listed(
    """
    apples pears plums lemons onions carrots beans nuts eggs cups plates forks knives spoons lamps chairs tables desks
    books pens pencils maps boxes bags coats shirts hats boots gloves rugs clocks bells drums ropes nails screws bolts
    tiles bricks tools
    """
)
MONTHS = _listed(
    """
    January February March April May June July August September October November December
    """
)
WORDS = _listed(  # common nouns for exercises on text
    """
    apple bread chair door eagle fish grass horse island jacket king lemon moon nest ocean paper queen river stone table
    uncle valley water yard zebra arrow bridge cloud desk engine forest garden hammer ice jungle kitchen lamp market
    night orange pencil road silver tiger umbrella village window yellow anchor bottle castle dragon earth flower gold
    hill iron juice knife letter mirror needle oil piano rabbit sugar train unit violin winter cat dog egg fox goat hat
    ink jar key leaf map nut owl pig rope sun tree urn van wolf box yak bell coin drum farm gate home lion milk nail
    park ring ship tent wind
    """
)
