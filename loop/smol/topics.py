"""The topics of the world `smol`: everyday things, each in one split only."""

TRAIN_TOPICS = (
    "rain", "bicycles", "bread", "honey bees", "libraries", "tea", "trains", "mountains", "salt",
    "paper", "rivers", "cats", "gardens", "bridges", "the sea", "chess", "snow", "maps", "coffee",
    "windmills", "apples", "shoes", "kites", "castles", "volcanoes", "pencils", "camels", "cheese",
    "farming", "wool", "deserts", "mirrors", "boats", "storms", "kitchens", "cinema", "forests",
    "markets", "elephants", "sleep", "umbrellas", "buttons", "candles", "carpets", "ladders",
    "whales", "foxes", "sheep", "spiders", "butterflies", "owls", "frogs", "ants", "wolves",
    "penguins", "dolphins", "turtles", "lemons", "potatoes", "onions", "carrots", "rice", "sugar",
    "pepper", "chocolate", "soup", "pasta", "grapes", "mushrooms", "tomatoes", "pumpkins", "nuts",
    "olives", "cinnamon", "swimming", "running", "hiking", "fishing", "tennis", "football",
    "sailing", "skiing", "dancing", "painting", "singing", "drawing", "knitting", "photography",
    "camping", "juggling", "guitars", "drums", "violins", "trumpets", "radio", "newspapers",
    "letters", "postcards", "dictionaries", "poems", "fairy tales", "diaries", "riddles", "jokes",
    "airports", "buses", "trams", "ferries", "tunnels", "canals", "harbours", "roads", "elevators",
    "traffic lights", "windows", "doors", "roofs", "stairs", "chimneys", "fences", "balconies",
    "cellars", "hotels", "museums", "theatres", "schools", "hospitals", "bakeries", "parks",
    "playgrounds", "zoos", "offices", "factories", "the wind", "fog", "ice", "clouds", "rainbows",
    "thunder", "earthquakes", "waterfalls", "lakes", "islands", "caves", "beaches", "valleys",
    "the stars", "winter", "summer", "mornings", "weekends",
)  # fmt: skip
DEV_TOPICS = (
    "clocks", "glass", "soap", "parrots", "boats on lakes", "dogs", "pianos", "ice skating",
    "towels", "spoons", "baskets", "keys", "coins", "stamps", "magnets", "batteries", "scissors",
    "needles", "pillows", "blankets", "horses", "goats", "rabbits", "snails", "crows", "sharks",
    "pears", "cherries", "garlic", "ginger", "cycling", "archery", "gymnastics", "flutes",
    "magazines", "proverbs", "taxis", "lifeboats", "attics", "autumn",
)  # fmt: skip
HELD_OUT_TOPICS = (
    "the moon", "music", "lighthouses", "wool socks", "kettles", "hammers", "ropes", "wheels",
    "bells", "flags", "compasses", "telescopes", "lanterns", "toothbrushes", "backpacks", "gloves",
    "hats", "eagles", "bears", "squirrels", "octopuses", "swans", "hedgehogs", "lizards",
    "bananas", "strawberries", "corn", "beans", "butter", "eggs", "vanilla", "milk", "surfing",
    "rowing", "volleyball", "chemistry", "geometry", "history", "pottery", "gardening", "harps",
    "crosswords", "calendars", "subways", "helicopters", "fountains", "towers", "glaciers",
    "spring", "holidays",
)  # fmt: skip
