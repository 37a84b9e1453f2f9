/// Keys and indices from the root to a value: `subsystem`, 0, `namespace`, 1, `nsid`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct KeyPath(Vec<Step>);

#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    Key(String),
    Index(usize),
}

impl KeyPath {
    pub(crate) fn root() -> Self {
        Self::default()
    }

    pub(crate) fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.to_owned()))
    }

    pub(crate) fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, above) = self.0.split_last()?;
        Some(Self(above.to_vec()))
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }

    pub(crate) fn table_name(&self) -> String {
        let keys: Vec<&str> = self
            .0
            .iter()
            .filter_map(|step| match step {
                Step::Key(key) => Some(key.as_str()),
                Step::Index(_) => None,
            })
            .collect();
        match (self.0.last(), keys.join(".")) {
            (None, _) => "the file".to_owned(),
            (Some(Step::Index(_)), name) => format!("[[{name}]]"),
            (Some(Step::Key(_)), name) => format!("[{name}]"),
        }
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }
}
