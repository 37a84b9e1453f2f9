//! Where in the configuration a value stands.

/// The path to a value: `subsystem`, 0, `namespace`, 1, `nsid`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Place(Vec<Step>);

/// One step into a table or an array.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Step {
    /// Into a table, by key.
    Key(String),
    /// Into an array, by index.
    Index(usize),
}

impl Place {
    /// The whole configuration.
    pub(crate) fn root() -> Self {
        Self::default()
    }

    /// The value of `key` in the table here.
    pub(crate) fn key(&self, key: &str) -> Self {
        self.step(Step::Key(key.to_owned()))
    }

    /// The `index`th element of the array here.
    pub(crate) fn index(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    /// What this is part of; `None` for the root.
    pub(crate) fn parent(&self) -> Option<Self> {
        let (_, above) = self.0.split_last()?;
        Some(Self(above.to_vec()))
    }

    pub(crate) fn steps(&self) -> &[Step] {
        &self.0
    }

    /// The table's name as its header in the file would have it.
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
