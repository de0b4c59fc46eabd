"""Synthetic conversations for the bundled tiny model: small, checkable skills, template stories.

Every task is a function of a random.Random that returns (question, answer, thinking text). The
order of the random calls is part of the data set: changing it changes every conversation after it.
"""
import re

NAMES = """
    Tom Lily Sam Mia Ben Anna Max Sue Tim Lucy Jack Emma Leo Zoe Kai Nora Finn Ella Omar Ivy
    Hugo Rosa Noah Ruth Eli Jade Cole Vera Dean Amy Igor Lena Paul Gina Rex Tara Owen Faye
    Carl Nina
""".split()
ANIMALS = """
    cat dog fox bear rabbit mouse owl frog duck horse turtle whale lion tiger sheep goat hen
    crow bee ant fish deer wolf pig cow panda seal crab snail bat
""".split()
COLORS = """
    red blue green yellow orange purple white black brown pink golden silver gray
""".split()
OBJECTS = """
    ball hat box key lamp boat kite drum book cup shoe bell rope coin map star apple cake
    flower stone ring bag pen clock chair door basket blanket ladder bottle
""".split()
PLACES = """
    park forest garden beach farm river hill village school house market lake cave castle
    meadow island bridge mountain library kitchen
""".split()
FEELS = """
    happy sad brave shy curious tired proud calm kind hungry
""".split()
WEATHER = """
    sunny rainy windy snowy cloudy foggy warm cold
""".split()
DAYS = """
    Monday Tuesday Wednesday Thursday Friday Saturday Sunday
""".split()
MONTHS = """
    January February March April May June July August September October November December
""".split()
CAPITALS = {
    "France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid",
    "Portugal": "Lisbon", "China": "Beijing", "Japan": "Tokyo", "India": "New Delhi",
    "Russia": "Moscow", "Canada": "Ottawa", "Brazil": "Brasilia", "Argentina": "Buenos Aires",
    "Chile": "Santiago", "Peru": "Lima", "Mexico": "Mexico City", "Cuba": "Havana",
    "Egypt": "Cairo", "Kenya": "Nairobi", "Ghana": "Accra", "Nigeria": "Abuja",
    "Morocco": "Rabat", "Norway": "Oslo", "Sweden": "Stockholm", "Finland": "Helsinki",
    "Denmark": "Copenhagen", "Iceland": "Reykjavik", "Ireland": "Dublin", "Poland": "Warsaw",
    "Austria": "Vienna", "Hungary": "Budapest", "Greece": "Athens", "Turkey": "Ankara",
    "Iran": "Tehran", "Iraq": "Baghdad", "Jordan": "Amman", "Thailand": "Bangkok",
    "Vietnam": "Hanoi", "Indonesia": "Jakarta", "Australia": "Canberra", "Ukraine": "Kyiv",
    "Romania": "Bucharest", "Bulgaria": "Sofia", "Serbia": "Belgrade", "Croatia": "Zagreb",
    "Belgium": "Brussels", "Switzerland": "Bern", "Nepal": "Kathmandu", "Pakistan": "Islamabad",
    "Mongolia": "Ulaanbaatar", "Colombia": "Bogota",
}
CHINESE = {
    "hello": "你好", "thank you": "谢谢", "goodbye": "再见", "water": "水", "fire": "火",
    "mountain": "山", "moon": "月亮", "sun": "太阳", "cat": "猫", "dog": "狗", "book": "书", "tea": "茶",
    "friend": "朋友", "teacher": "老师", "school": "学校", "flower": "花", "rain": "雨", "snow": "雪",
    "red": "红色", "blue": "蓝色",
}
OPPOSITES = [
    ("hot", "cold"), ("big", "small"), ("fast", "slow"), ("up", "down"), ("happy", "sad"),
    ("day", "night"), ("open", "closed"), ("full", "empty"), ("young", "old"),
    ("tall", "short"), ("wet", "dry"), ("light", "dark"), ("early", "late"), ("near", "far"),
    ("rich", "poor"), ("strong", "weak"),
]
PRIMES = [p for p in range(2, 100) if all(p % d for d in range(2, int(p**0.5) + 1))]

CAN_DO = "I can add and sort numbers, remember notes, name capitals and tell short stories."
TALK = [
    ("Hello!", "Hello! How can I help you today?"), ("Hi", "Hello! How can I help you today?"),
    ("Thank you.", "You are welcome!"), ("Thanks!", "You are welcome!"),
    ("Goodbye.", "Goodbye! Come back soon."),
    ("How are you?", "I am well, thank you. How are you?"),
    ("introduce yourself", "I am Nano, a tiny language model. " + CAN_DO),
    ("Who are you?", "I am Nano, a tiny language model."),
    ("What is your name?", "My name is Nano."),
    ("What can you do?", CAN_DO),
    ("Are you a person?", "No, I am Nano, a tiny language model."),
    ("Good morning!", "Good morning! How can I help you today?"),
]

# A story has one sentence from each of these lists, but one to three from DO.
OPEN = [
    "Once upon a time, in a {w} {p}, there lived a {c} {a} named {n}.",
    "There was once a {f} {a} named {n} who lived near a {p}.",
    "One {w} day, a little {a} named {n} walked to the {p}.",
    "In a small {p} lived {n}, a {f} {c} {a}.",
]
WANT = [
    "{n} wanted to find a {c2} {o}.",
    "{n} loved a {c2} {o} more than anything.",
    "One morning, {n} saw a {c2} {o} in the {p2}.",
    "{n} had lost a {c2} {o} and felt {f2}.",
]
MEET = [
    'On the way, {n} met a {a2} named {m}. "Can you help me?" asked {n}. "Of course," said {m}.',
    'A {f2} {a2} named {m} came by. "What are you looking for?" asked {m}. "My {o}," said {n}.',
    'Then {m} the {a2} came to play. "Let us go to the {p2} together," said {m}.',
]
DO = [
    "They looked behind the {o2} and under the {o3}, but they did not find it.",
    "They walked over the {p3} and sang a song.",
    '{m} climbed up high and looked around. "I see something {c2}!" said {m}.',
    "They shared some food and rested for a while. It was {w}, and they felt {f3}.",
]
END = [
    'At last they found the {o}. {n} was very {f3}. "Thank you, {m}," said {n}. From that '
    "day on, they were best friends.",
    "In the end, {n} gave the {o} to {m}, and both were {f3}. They went home and slept well.",
    "{n} learned that it is good to ask a friend for help. And they all lived happily ever after.",
]


def an(text):
    """Writes "an" for "a" before a vowel."""
    return re.sub(r"\b([aA]) (?=[aeiou])", r"\1n ", text)


def addition(r):
    a, b = r.randint(0, 99), r.randint(0, 99)
    forms = ["What is {a} + {b}?", "Add {a} and {b}.", "{a} + {b} = ?",
             "Please compute {a} plus {b}."]
    question = r.choice(forms).format(a=a, b=b)
    thinking = (
        f"The ones: {a%10} + {b%10} = {a%10+b%10}. "
        f"The tens: {a//10} + {b//10} = {a//10+b//10}. Together: {a+b}."
    )
    return question, f"{a} + {b} = {a+b}.", thinking


def subtraction(r):
    a, b = sorted((r.randint(0, 99), r.randint(0, 99)), reverse=True)
    forms = ["What is {a} - {b}?", "Take {b} away from {a}.", "{a} - {b} = ?"]
    question = r.choice(forms).format(a=a, b=b)
    return question, f"{a} - {b} = {a-b}.", f"Start at {a} and go down by {b}. That leaves {a-b}."


def times(r):
    a, b = r.randint(1, 12), r.randint(1, 12)
    forms = ["What is {a} times {b}?", "{a} x {b} = ?", "Multiply {a} by {b}."]
    question = r.choice(forms).format(a=a, b=b)
    return question, f"{a} x {b} = {a*b}.", f"{a} groups of {b} make {a*b}."


def retrieval(r, n=None):
    """Notes on n people (at most 40), and a question about one of them."""
    n = n or r.choice([3, 4, 6, 8, 12, 20, 40])
    kind = r.choice(["number", "thing"])
    if n > 20:
        count = min(n, 40)
        people = [f"{a} {b}" for a, b in zip(r.sample(NAMES, count), r.choices(COLORS, k=count))]
    else:
        people = r.sample(NAMES, n)
    lines, answers = [], {}
    for p in people:
        number = kind == "number"
        v = str(r.randint(10, 99)) if number else f"a {r.choice(COLORS)} {r.choice(OBJECTS)}"
        answers[p] = v
        lines.append(f"{p}'s number is {v}." if number else f"{p} has {v}.")
    p = r.choice(people)
    if kind == "number":
        question, answer = f"What is {p}'s number?", f"{p}'s number is {answers[p]}."
    else:
        question, answer = f"What does {p} have?", f"{p} has {answers[p]}."
    notes = "Here are some notes. " + " ".join(lines) + " "
    return notes + question, answer, f"Look for {p} in the notes."


def sorting(r):
    xs = [r.randint(0, 99) for _ in range(r.randint(3, 7))]
    numbers = " ".join(map(str, xs))
    forms = ["Sort these numbers: {s}", "Put these numbers in order: {s}"]
    question = r.choice(forms).format(s=numbers)
    answer = " ".join(map(str, sorted(xs)))
    return question, answer, "Go from the smallest to the largest."


def counting(r):
    a = r.randint(0, 80)
    b = a + r.randint(2, 15)
    answer = ", ".join(map(str, range(a, b + 1))) + "."
    return f"Count from {a} to {b}.", answer, f"Start at {a} and add one until {b}."


def primes(r):
    n = r.choice([10, 20, 30, 50, 70, 100])
    question = r.choice([
        f"list all prime numbers within {n}",
        f"List all prime numbers within {n}.",
        f"Which numbers below {n} are prime?",
    ])
    found = ", ".join(str(p) for p in PRIMES if p <= n)
    answer = f"The prime numbers within {n} are {found}."
    return question, answer, "A prime number has no divisors but one and itself."


def capital(r):
    c = r.choice(list(CAPITALS))
    question = r.choice([
        f"What is the capital of {c}?",
        f"Name the capital of {c}.",
        f"Which city is the capital of {c}?",
    ])
    return question, f"The capital of {c} is {CAPITALS[c]}.", f"The question is about {c}."


def chinese(r):
    e = r.choice(list(CHINESE))
    thinking = "This is a word I know."
    if r.random() < 0.5:
        return f'How do you say "{e}" in Chinese?', f'"{e}" in Chinese is {CHINESE[e]}.', thinking
    return f"What does {CHINESE[e]} mean?", f'{CHINESE[e]} means "{e}".', thinking


def calendar(r):
    if r.random() < 0.5:
        i = r.randrange(7)
        word, step = r.choice([("after", 1), ("before", -1)])
        answer = f"The day {word} {DAYS[i]} is {DAYS[(i + step) % 7]}."
        return f"What day comes {word} {DAYS[i]}?", answer, "Think of the week."
    i = r.randrange(12)
    word, step = r.choice([("after", 1), ("before", -1)])
    answer = f"The month {word} {MONTHS[i]} is {MONTHS[(i + step) % 12]}."
    return f"What month comes {word} {MONTHS[i]}?", answer, "Think of the year."


def opposite(r):
    a, b = r.choice(OPPOSITES)
    if r.random() < 0.5:
        a, b = b, a
    return f"What is the opposite of {a}?", f"The opposite of {a} is {b}.", "Turn it around."


def repeat(r):
    every_word = OBJECTS + ANIMALS + COLORS + PLACES
    words = " ".join(r.choice(every_word) for _ in range(r.randint(2, 9)))
    return f"Repeat after me: {words}", words, "Say the same words."


def json_task(r):
    n, a, c = r.choice(NAMES), r.randint(2, 99), r.choice(PLACES)
    question = f"Write JSON for a person: name {n}, age {a}, place {c}."
    answer = f'{{"name": "{n}", "age": {a}, "place": "{c}"}}'
    return question, answer, "Three keys: name, age, place."


def talk(r):
    question, answer = r.choice(TALK)
    return question, answer, "The user is being friendly."


def story(r, animal=None, name=None):
    n, m = r.sample(NAMES, 2)
    a, a2 = r.sample(ANIMALS, 2)
    a, n = animal or a, name or n
    if m == n:
        m = "Bo"
    fields = {"n": n, "m": m, "a": a, "a2": a2}
    kinds = [("c", COLORS), ("c2", COLORS), ("o", OBJECTS), ("o2", OBJECTS), ("o3", OBJECTS)]
    kinds += [("p", PLACES), ("p2", PLACES), ("p3", PLACES)]
    kinds += [("f", FEELS), ("f2", FEELS), ("f3", FEELS), ("w", WEATHER)]
    for field, choices in kinds:
        fields[field] = r.choice(choices)
    parts = [r.choice(OPEN), r.choice(WANT), r.choice(MEET)]
    parts += r.sample(DO, r.randint(1, 3)) + [r.choice(END)]
    if r.random() < 0.7:
        forms = [f"Tell me a story about a {a} named {n}.",
                 f"Write a short story about a {a} named {n}."]
    else:
        forms = [f"Tell me a story about a {a}."]
    return r.choice(forms), " ".join(parts).format(**fields), f"The story is about a {a}."


# (task, weight)
TASKS = [
    (addition, 5), (subtraction, 4), (times, 3), (retrieval, 5), (sorting, 3), (counting, 1.5),
    (primes, 0.5), (capital, 2), (chinese, 1), (calendar, 1), (opposite, 1), (repeat, 2),
    (json_task, 1), (talk, 1), (story, 3),
]
# Tasks with one right answer; the others are judged by reading.
CHECKABLE_TASKS = [task for task, _ in TASKS if task not in (story, talk)]
SYSTEMS = [
    None, None, None, "You are a helpful assistant.", "You are Nano, a tiny language model.",
    "Answer briefly.", "You help children learn.",
]


def conversation(r):
    """Messages of one conversation. Assistant turns have "think": a text, or None (thinking off)."""
    tasks, weights = zip(*TASKS)
    messages = []
    system = r.choice(SYSTEMS)
    if system:
        messages.append({"role": "system", "content": system})
    thinking = r.random() < 0.3
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        question, answer, thought = map(an, r.choices(tasks, weights)[0](r))
        messages.append({"role": "user", "content": question})
        think = thought if thinking else None
        messages.append({"role": "assistant", "content": answer, "think": think})
    return messages
